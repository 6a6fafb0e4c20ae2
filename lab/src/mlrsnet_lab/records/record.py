"""One run in memory."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlrsnet.files.untrusted import one_line

FORMAT = 1
RUNNING, FINISHED, INTERRUPTED, FAILED, DIVERGED = "running", "finished", "interrupted", "failed", "diverged"
ENDED = (FINISHED, DIVERGED)
ADDED_LATER = {"rays": 0}
"""Fields of a RunSpec that old records lack, with the values their runs used."""


@dataclass(frozen=True)
class Record:
    """One run as it stands on disk; `folder` is None for a run that is kept in memory only.

    A run in a pack keeps its folder's path, though no such folder may exist any more.
    """

    data: dict[str, Any]
    epochs: list[dict[str, Any]] = field(default_factory=list)
    trace: dict[str, list[float]] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def status(self) -> str:
        """running, finished, interrupted, failed or diverged."""
        return str(self.data["status"])

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to train."""
        return self.status in ENDED

    @property
    def spec(self) -> dict[str, Any]:
        """The RunSpec as plain JSON."""
        return ADDED_LATER | self.data["spec"]

    @property
    def result(self) -> dict[str, Any]:
        """Last-epoch and best metric, losses; empty before the first evaluation."""
        return self.entry("result")

    def entry(self, name: str) -> dict[str, Any]:
        """A copy of an object in the record; empty if there is none, or something else."""
        found = self.data.get(name)
        return dict(found) if isinstance(found, dict) else {}

    def comparable(self) -> dict[str, Any]:
        """Everything that two equal runs share."""
        same = {key: value for key, value in self.data.items() if key not in ("timing", "sessions")}
        epochs = [{key: value for key, value in line.items() if key != "seconds"} for line in self.epochs]
        return {"record": same, "epochs": epochs, "trace": self.trace}


def check(data: Any, place: str, epochs: Any = (), trace: Any = None) -> dict[str, Any]:
    """The content of a record.json; one ValueError if it, or what lies beside it, is no run, or one of a newer mlrsnet."""
    if not isinstance(data, dict) or not {"format", "status"} <= data.keys() or not isinstance(data.get("spec"), dict):
        raise ValueError(f"{place} cannot be read (no run record): restore it, or delete it")
    if data["format"] != FORMAT:
        raise ValueError(
            f"{place} has format {one_line(str(data['format']))}, this mlrsnet reads {FORMAT}: upgrade mlrsnet"
        )
    if not isinstance(epochs, list | tuple) or not isinstance(trace or {}, dict):
        raise ValueError(f"{place} cannot be read (no list of epochs, or no trace): restore it, or delete it")
    return data
