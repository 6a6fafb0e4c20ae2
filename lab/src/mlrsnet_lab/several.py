"""Several runs, one after the other: one that fails does not stop the rest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlrsnet_lab.lock import RunInUseError
from mlrsnet_lab.loop import run
from mlrsnet_lab.records import Record
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.watch import Watcher


@dataclass(frozen=True)
class Planned:
    """A run to make: what, where, and a title for people."""

    spec: RunSpec
    folder: Path
    title: str


Watch = Callable[[Planned], Sequence[Watcher]]


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


def train_all(
    planned: Sequence[Planned],
    *,
    device: str = "auto",
    root: Path | None = None,
    watch: Watch = lambda one: (),
) -> Outcome:
    """Train these runs in turn. With a single run, an error that explains itself is raised as it is.

    Args:
        planned: the runs; each is numbered in its title if there are several.
        device, root: see `run`.
        watch: returns the watchers of a run.
    """
    outcome = Outcome(total=len(planned))
    caught = (RuntimeError, RunInUseError, *((ValueError, TypeError, OSError, ImportError) if len(planned) > 1 else ()))
    for number, one in enumerate(planned, 1):
        title = one.title if len(planned) == 1 else f"{number}/{len(planned)} {one.title}"
        watchers = watch(Planned(one.spec, one.folder, title))
        try:
            outcome.records.append(run(one.spec, one.folder, device=device, root=root, watchers=watchers))
        except caught as error:
            outcome.failures.append(f"{one.folder}: {type(error).__name__}: {error}")
            outcome.cause = error.with_traceback(None)  # the traceback would keep the training's memory alive
    return outcome
