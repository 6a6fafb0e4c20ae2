"""Trainings on a terminal: one bar each, with what they are at and how long it will take."""

import math
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from mlrsnet.lab.records import Record
from mlrsnet.lab.watch import Watcher


def bars(console: Console) -> Progress:
    """A place for bars."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TaskProgressColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
    )


class Bar(Watcher):
    """One training's bar, counted in steps; says the loss, LR and metric of the last epoch."""

    def __init__(self, progress: Progress, title: str) -> None:
        self.progress, self.title = progress, title
        self.task = progress.add_task(title, total=None)
        self.metric = "accuracy"

    def begin(self, record: Record, step: int, total_steps: int) -> None:
        """Where it starts."""
        self.metric = record.data["metric"]["name"]
        self.progress.update(self.task, total=total_steps, completed=step)

    def steps(self, step: int) -> None:
        """Where it is."""
        self.progress.update(self.task, completed=step)

    def epoch(self, line: dict[str, Any], losses: list[float], lrs: list[float]) -> None:
        """What it has reached."""
        words = [self.title, f"loss {line['train_loss']:.3g}", f"LR {line['lr']:.2g}"]
        if math.isfinite(line.get("test_metric", math.nan)):
            words.append(f"{self.metric} {line['test_metric']:.2f}")
        self.progress.update(self.task, completed=line["step"], description="  ".join(words))

    def end(self, record: Record) -> None:
        """Unfinished ones say so."""
        if not record.ended:
            self.progress.update(self.task, description=f"{self.title}  {record.status}")
