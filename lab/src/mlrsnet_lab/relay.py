"""Watch a run from another process: a `Relay` tells what its watchers would hear, and a `Replay` tells it to them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mlrsnet_lab.executors import Begun, Died
from mlrsnet_lab.records import INTERRUPTED, Record
from mlrsnet_lab.watch import Watcher

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
