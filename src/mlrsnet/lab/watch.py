"""Who looks on while a training runs: progress bars, TensorBoard, a user's own."""

from typing import Any

from mlrsnet.lab.records import Record


class Watcher:
    """Hears of a run; overrides what it wants to know. An error in a watcher ends the run, which stays resumable."""

    def begin(self, record: Record, step: int, total_steps: int) -> None:
        """A training begins, or goes on after `step` steps."""

    def steps(self, step: int) -> None:
        """So many steps are done; called now and then."""

    def epoch(self, line: dict[str, Any], losses: list[float], lrs: list[float]) -> None:
        """An epoch has ended: its line for the records, and every step's loss and LR."""

    def end(self, record: Record) -> None:
        """The run has ended, or was stopped."""
