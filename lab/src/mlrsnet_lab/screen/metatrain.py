"""`mlrsnet metatrain` on a terminal: a bar, and for whole trainings the LR curve and the gaps to hand-designed schedules."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TaskID

from mlrsnet_lab.board import Board
from mlrsnet_lab.horizon import Comparison, HorizonTrainer
from mlrsnet_lab.meta_board import MetaTrainingBoard
from mlrsnet_lab.meta_specs import GreedySpec, HorizonSpec, MetaSpec
from mlrsnet_lab.meta_training import before_this_process, learn_greedy, learn_horizon
from mlrsnet_lab.screen.progress import Bar, bars
from mlrsnet_lab.settings import Settings

BLOCKS = "▁▂▃▄▅▆▇█"


def show_metatrain(spec: MetaSpec, out: Path, settings: Settings) -> None:
    """Learn a schedule into `out` with a progress bar; end with its card."""
    try:
        if isinstance(spec, GreedySpec):
            _show_greedy(spec, out, settings)
        else:
            _show_horizon(spec, out, settings)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command continues where it stopped") from None


def _events(out: Path) -> Path:
    return out.with_name(out.name + ".tensorboard")


def _show_greedy(spec: GreedySpec, out: Path, settings: Settings) -> None:
    with bars(Console()) as progress:
        watchers = [Bar(progress, "learning"), *([Board(_events(out))] if settings.tensorboard else [])]
        schedule, record = learn_greedy(spec, out, settings, watchers=watchers)
    lrs = record.trace["lr"]
    print(schedule.describe())
    print(f"LR           {lrs[0]:.4g} at the start, {lrs[len(lrs) // 2]:.4g} halfway, {lrs[-1]:.4g} at the end")
    print(f"\nschedule: {out}")


def _show_horizon(spec: HorizonSpec, out: Path, settings: Settings) -> None:
    with bars(Console()) as progress, _board(_events(out) if settings.tensorboard else None) as events:
        bar = MetaTrainingBar(progress, "learning", events)
        schedule, record = learn_horizon(spec, out, settings, on_generation=bar)
    print(schedule.describe())
    print(f"\nschedule: {out}\nrecord:   {record}")


@contextmanager
def _board(folder: Path | None) -> Iterator[MetaTrainingBoard | None]:
    board = MetaTrainingBoard(folder) if folder else None
    try:
        yield board
    finally:
        if board is not None:
            board.close()


class MetaTrainingBar:
    """A bar counted in generations, with one line above it for every comparison."""

    def __init__(self, progress: Progress, title: str, board: MetaTrainingBoard | None = None) -> None:
        self.progress, self.title, self.board = progress, title, board
        self.task: TaskID | None = None
        self.shown = 0

    def __call__(self, trainer: HorizonTrainer) -> None:
        """Update it after a generation."""
        line = trainer.history[-1]
        if self.task is None:
            self.task = self.progress.add_task(self.title, total=trainer.evolution.generations, now="")
            self.shown = before_this_process(trainer)
        for found in trainer.comparisons[self.shown :]:
            self.progress.console.print(comparison_line(found), markup=False, highlight=False, soft_wrap=True)
        self.shown = len(trainer.comparisons)
        self.progress.update(
            self.task, completed=line.number, now=f"fitness {line.fitness:.3f} horizon {line.total_steps}"
        )
        if self.board is not None:
            self.board(trainer)


def comparison_line(found: Comparison) -> str:
    """A comparison in one line. The LRs it is compared with were chosen on the same tasks."""
    gaps = ", ".join(f"{kind} {100 * found.gap(kind):+.1f} %" for kind in found.tuned)
    return (
        f"generation {found.number:4d}  gap to the best LR of {gaps}; to the oracle of each task "
        f"{100 * found.gap(oracle=True):+.1f} %  LR {sparkline(found.lrs)} up to {max(found.lrs):.2g}"
    )


def sparkline(values: list[float], width: int = 24) -> str:
    """A curve from 0 to its largest value, in one line of text.

    >>> sparkline([0.0, 0.5, 1.0], 3)
    '▁▅█'
    """
    chosen = values if len(values) <= width else [values[i * len(values) // width] for i in range(width)]
    top = max(values, default=0.0) or 1.0
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int(value / top * len(BLOCKS)))] for value in chosen)
