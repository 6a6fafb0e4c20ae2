"""Trainings on a terminal: one bar each, with what they are at and how long it will take."""

import math
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from mlrsnet.lab.records import FINISHED, Record
from mlrsnet.lab.watch import Watcher

SHOWN = 12
"""So many bars at once: a terminal shows no more than its height, and the last one is the one that moves."""


class Bars(Progress):
    """Leaves nothing behind where nothing has begun, not even an empty line."""

    def stop(self) -> None:
        """When all is done, or could not begin."""
        if self.tasks:
            super().stop()
        else:
            self.live.stop()


def bars(console: Console) -> Progress:
    """A place for bars; what was given as a name is shown as it is, brackets too."""
    title = Column(max_width=36, no_wrap=True, overflow="ellipsis")
    return Bars(
        TextColumn("{task.description}", markup=False, table_column=title),
        BarColumn(bar_width=6),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[now]}", markup=False),
        console=console,
    )


class Bar(Watcher):
    """One training's bar, counted in steps; says the loss, LR and metric of the last epoch."""

    def __init__(self, progress: Progress, title: str) -> None:
        self.progress, self.title = progress, title
        self.unit, self.moved = "", False

    def begin(self, record: Record, step: int, total_steps: int) -> None:
        """Where it starts."""
        for task in self.progress.tasks[: 1 - SHOWN]:
            self.progress.remove_task(task.id)
        self.unit = record.data["metric"]["unit"]
        self.task = self.progress.add_task(self.title, total=total_steps, completed=step, now="")

    def steps(self, step: int) -> None:
        """Where it is."""
        self.progress.update(self.task, completed=step)

    def epoch(self, line: dict[str, Any], losses: list[float], lrs: list[float]) -> None:
        """What it has reached."""
        words = [f"loss {line['train_loss']:.2g}", f"LR {line['lr']:.2g}"]
        metric = line.get("test_metric", math.nan)
        if math.isfinite(metric):
            words.append(f"{metric:.2f} %" if self.unit == "%" else f"ppl {metric:.1f}")
        self.progress.update(self.task, completed=line["step"], now=" ".join(words))
        self.moved = True

    def end(self, record: Record) -> None:
        """Unfinished ones say so, and so do those that were finished before."""
        if record.status != FINISHED or not self.moved:
            self.progress.update(self.task, now=record.status + ("" if self.moved or not record.ended else " before"))
