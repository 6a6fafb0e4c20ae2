"""Several runs, one after the other: one that fails does not stop the rest."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mlrsnet_lab.lock import RunInUseError
from mlrsnet_lab.loop import run
from mlrsnet_lab.records import Record
from mlrsnet_lab.settings import DEFAULT, Settings
from mlrsnet_lab.watch import Planned


@dataclass
class Outcome:
    """The records of the runs that were made, and one line for each failure.

    total: how many runs or recipes were tried.
    cause: the last error.
    """

    records: list[Record] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    total: int = 0
    cause: Exception | None = None

    def raise_failures(self) -> None:
        """Raise one RuntimeError that lists all failures; do nothing if there are none."""
        if self.failures:
            raise RuntimeError(
                f"{len(self.failures)} of {self.total} runs failed; {'; '.join(self.failures)}"
            ) from self.cause


def train_all(planned: Sequence[Planned], settings: Settings = DEFAULT) -> Outcome:
    """Train these runs in turn, numbered if there are several. A single one raises an error that explains itself as it is."""
    outcome = Outcome(total=len(planned))
    caught = (RuntimeError, RunInUseError, *((ValueError, TypeError, OSError, ImportError) if len(planned) > 1 else ()))
    for number, one in enumerate(planned, 1):
        title = one.title if len(planned) == 1 else f"{number}/{len(planned)} {one.title}"
        watchers = settings.watch(replace(one, title=title))
        try:
            outcome.records.append(run(one.spec, one.folder, settings, watchers=watchers))
        except caught as error:
            outcome.failures.append(f"{one.folder}: {type(error).__name__}: {error}")
            outcome.cause = error.with_traceback(None)  # the traceback would keep the training's memory alive
    return outcome
