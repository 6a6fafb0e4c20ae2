"""A full-horizon meta-training on a terminal: a bar, and now and then the LR curve and the gaps to its rivals."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TaskID

from mlrsnet import _check
from mlrsnet.horizon import Comparison, HorizonTrainer
from mlrsnet.lab.board import HorizonBoard
from mlrsnet.lab.horizon import RECIPES, RECORD, HorizonSpec, before_this_process, learn
from mlrsnet.lab.screen.progress import bars
from mlrsnet.lab.screen.train import learning_folder

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: list[float], width: int = 24) -> str:
    """A curve from 0 to its largest value in one line of text.

    >>> sparkline([0.0, 0.5, 1.0], 3)
    '▁▅█'
    """
    chosen = values if len(values) <= width else [values[i * len(values) // width] for i in range(width)]
    top = max(values, default=0.0) or 1.0
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int(value / top * len(BLOCKS)))] for value in chosen)


def comparison_line(found: Comparison) -> str:
    """What a comparison says, in one line; the rivals' LR was chosen on these very tasks."""
    gaps = ", ".join(f"{kind} {100 * found.gap(kind):+.1f} %" for kind in found.tuned)
    return (
        f"generation {found.number:4d}  gap to the best LR of {gaps}; to the oracle of each task "
        f"{100 * found.gap(oracle=True):+.1f} %  LR {sparkline(found.lrs)} up to {max(found.lrs):.2g}"
    )


class HorizonBar:
    """A bar counted in generations, with a line above it for every comparison."""

    def __init__(self, progress: Progress, title: str, board: HorizonBoard | None = None) -> None:
        self.progress, self.title, self.board = progress, title, board
        self.task: TaskID | None = None
        self.shown = 0

    def __call__(self, trainer: HorizonTrainer) -> None:
        """After a generation."""
        line = trainer.history[-1]
        if self.task is None:
            self.task = self.progress.add_task(self.title, total=trainer.generations, now="")
            self.shown = before_this_process(trainer)
        for found in trainer.comparisons[self.shown :]:
            self.progress.console.print(comparison_line(found), markup=False, highlight=False, soft_wrap=True)
        self.shown = len(trainer.comparisons)
        self.progress.update(
            self.task, completed=line.number, now=f"fitness {line.fitness:.3f} horizon {line.total_steps}"
        )
        if self.board is not None:
            self.board(trainer)


def show_horizon(
    fields: Mapping[str, Any], out: Path, device: str, root: Path | None, tensorboard: bool, recipe: str | None = None
) -> None:
    """Meta-train into `out`; a folder beside it lets an interrupted run go on. Fields are on top of a recipe's."""
    spec = (
        HorizonSpec(**fields)
        if recipe is None
        else replace(RECIPES[_check.one_of("recipe", recipe, RECIPES)], **fields)
    )
    folder = learning_folder(out)
    board = HorizonBoard(out.with_name(out.name + ".tensorboard")) if tensorboard else None
    try:
        with bars(Console()) as progress:
            bar = HorizonBar(progress, "learning", board)
            schedule, _ = learn(spec, folder, device=device, root=root, on_generation=bar)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command goes on where it was stopped") from None
    finally:
        if board is not None:
            board.close()
    schedule.save(out)
    record = out.with_name(out.name + ".json")
    shutil.copy(folder / RECORD, record)
    shutil.rmtree(folder)
    print(schedule.describe())
    print(f"\nschedule: {out}\nrecord:   {record}")
