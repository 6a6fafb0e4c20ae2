"""Trainings on a terminal: one progress bar each."""

import math
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from mlrsnet.lab.board import Board
from mlrsnet.lab.records import FINISHED, Record
from mlrsnet.lab.several import Planned, Watch
from mlrsnet.lab.watch import Watcher

SHOWN = 12
"""Bars on the screen at once. A terminal cuts off what exceeds its height, and the last bar is the one that moves."""


class Bars(Progress):
    """Prints nothing, not even an empty line, if no training began."""

    def stop(self) -> None:
        """Take the bars off the screen, or leave them where they ended."""
        if self.tasks:
            super().stop()
        else:
            self.live.stop()


def bars(console: Console) -> Progress:
    """A place for bars. Titles are printed as they are, brackets too."""
    title = Column(max_width=36, no_wrap=True, overflow="ellipsis")
    return Bars(
        TextColumn("{task.description}", markup=False, table_column=title),
        BarColumn(bar_width=6),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[now]}", markup=False),
        console=console,
    )


def watchers(progress: Progress, tensorboard: bool, *more: Watcher) -> Watch:
    """For every run a bar, and event files in its folder if `tensorboard`."""

    def watch(run: Planned) -> list[Watcher]:
        boards = [Board(run.folder / "tensorboard")] if tensorboard else []
        return [*more, Bar(progress, run.title), *boards]

    return watch


class Bar(Watcher):
    """One training's bar, counted in steps, with the loss, LR and metric of the last epoch."""

    def __init__(self, progress: Progress, title: str) -> None:
        self.progress, self.title = progress, title
        self.unit, self.moved = "", False

    def begin(self, record: Record, step: int, total_steps: int) -> None:
        """Add the bar."""
        for task in self.progress.tasks[: 1 - SHOWN]:
            self.progress.remove_task(task.id)
        self.unit = record.data["metric"]["unit"]
        self.task = self.progress.add_task(self.title, total=total_steps, completed=step, now="")

    def steps(self, step: int) -> None:
        """Move the bar."""
        self.progress.update(self.task, completed=step)

    def epoch(self, line: dict[str, Any], losses: list[float], lrs: list[float]) -> None:
        """Show the epoch's numbers."""
        words = [f"loss {line['train_loss']:.2g}", f"LR {line['lr']:.2g}"]
        metric = line.get("test_metric", math.nan)
        if math.isfinite(metric):
            words.append(f"{metric:.2f} %" if self.unit == "%" else f"ppl {metric:.1f}")
        self.progress.update(self.task, completed=line["step"], now=" ".join(words))
        self.moved = True

    def end(self, record: Record) -> None:
        """Show the status of a run that did not finish, or was finished before."""
        if record.status != FINISHED or not self.moved:
            self.progress.update(self.task, now=record.status + ("" if self.moved or not record.ended else " before"))
