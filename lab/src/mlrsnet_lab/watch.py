"""Watchers of a training, called directly in its process: progress bars, TensorBoard, or your own.

For a run in another process a `Relay` tells what they would hear, and a `Replay` tells it to them.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlrsnet_lab.executors import Begun, Died
from mlrsnet_lab.records import INTERRUPTED, Record
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

PAUSE = 1.0
"""Seconds at least between two events about steps alone."""


class Relay(Watcher):
    """Tells of a run as (method of a watcher, arguments)."""

    def __init__(self, tell: Callable[[tuple[str, tuple[Any, ...]]], None]) -> None:
        self.tell, self.told_at = tell, 0.0

    def begin(self, record: Record, step: int, total_steps: int) -> None:
        """See `Watcher`."""
        self.tell(("begin", (record, step, total_steps)))

    def steps(self, step: int) -> None:
        """See `Watcher`; left out if the last one was a moment ago."""
        if time.monotonic() - self.told_at >= PAUSE:
            self.told_at = time.monotonic()
            self.tell(("steps", (step,)))

    def epoch(self, line: dict[str, Any], losses: list[float], lrs: list[float]) -> None:
        """See `Watcher`."""
        self.tell(("epoch", (line, losses, lrs)))

    def end(self, record: Record) -> None:
        """See `Watcher`."""
        self.tell(("end", (record,)))


class Replay:
    """Tells watchers what a relay told, from the beginning for every process that tries the run.

    Args:
        watch: returns the watchers, given the name of the process.
    """

    def __init__(self, watch: Callable[[str], Sequence[Watcher]]) -> None:
        self.watch, self.worker = watch, ""
        self.watchers: Sequence[Watcher] = ()
        self.record: Record | None = None

    def __call__(self, event: Any) -> None:
        """One event."""
        if isinstance(event, Begun):
            self.worker = event.worker
        elif isinstance(event, Died):
            self._died()
        else:
            method, arguments = event
            if method == "begin":
                self.record, self.watchers = arguments[0], self.watch(self.worker)
            for watcher in self.watchers:
                getattr(watcher, method)(*arguments)

    def _died(self) -> None:
        """To those who watch, a dead process looks like an interruption."""
        if self.record is not None:
            for watcher in self.watchers:
                watcher.end(replace(self.record, data=self.record.data | {"status": INTERRUPTED}))
        self.record, self.watchers = None, ()
