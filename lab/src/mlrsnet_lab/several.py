"""Several runs, one after the other, or all that are unfinished: one that fails does not stop the rest."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlrsnet_lab import records
from mlrsnet_lab.lock import RunInUseError
from mlrsnet_lab.loop import run
from mlrsnet_lab.records import Record
from mlrsnet_lab.settings import DEFAULT, Settings
from mlrsnet_lab.spec import RunSpec
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


@dataclass(frozen=True)
class Runs:
    """The runs below a folder, and one line for each that cannot be read."""

    found: list[Record]
    unreadable: list[str]


def read_below(folder: Path) -> Runs:
    """Read every run at or below a folder."""
    runs = Runs([], [])
    for path in records.find(folder):
        try:
            runs.found.append(records.read(path))
        except ValueError as error:
            runs.unreadable.append(str(error))
    return runs


def resume(folder: Path, settings: Settings = DEFAULT) -> Outcome:
    """Continue the run in a folder, or all unfinished runs below it; tells what is left as it is, such as what cannot be read."""
    runs = Runs([records.read(folder)], []) if records.holds(folder) else read_below(folder)
    if not runs.found and not runs.unreadable:
        raise ValueError(f"there are no runs below {folder}: pass a run's folder, or one above runs")
    for message in runs.unreadable:
        settings.tell(f"unreadable: {message}")
    unfinished = [record for record in runs.found if not record.ended]
    if not unfinished:
        count = f"{len(runs.found)} {'run' if len(runs.found) == 1 else 'runs'}"
        settings.tell(f"nothing to do: {count} below {folder}, none unfinished")
    return train_all(_plan(unfinished, folder, settings), settings)


def _plan(unfinished: list[Record], folder: Path, settings: Settings) -> list[Planned]:
    planned = []
    for record in unfinished:
        try:
            planned.append(Planned(RunSpec.from_dict(record.spec), record.folder or folder, describe_run(record)))
        except ValueError as error:
            settings.tell(f"left as it is: {record.folder}: {error}")
    return planned


def describe_run(record: Record) -> str:
    """What a run trains, in a few words: its place in a recipe's table, or the names in its spec."""
    labels = record.entry("labels")
    place = [str(labels[key]) for key in ("column", "row") if key in labels]
    if place:
        return " ".join([*place, f"seed {record.spec.get('seed')}"])
    return ", ".join(str(record.spec.get(name)) for name in ("task", "model", "optimizer", "schedule"))
