"""Watchers of a training: progress bars, TensorBoard, or your own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlrsnet_lab.records import Record
from mlrsnet_lab.spec import RunSpec


class Watcher:
    """Is told of a run's progress; override what you need. An error in a watcher stops the run, which can be resumed."""

    def begin(self, record: Record, step: int, total_steps: int) -> None:
        """A training starts, or resumes after `step` steps."""

    def steps(self, step: int) -> None:
        """`step` steps are done; called about once a second."""

    def epoch(self, line: dict[str, Any], losses: list[float], lrs: list[float]) -> None:
        """An epoch has ended: its line in the record, and the loss and LR of every step."""

    def end(self, record: Record) -> None:
        """The run has ended or was stopped."""


@dataclass(frozen=True)
class Planned:
    """A run to make: what, where, and a title for people."""

    spec: RunSpec
    folder: Path
    title: str


Watch = Callable[[Planned], Sequence[Watcher]]
