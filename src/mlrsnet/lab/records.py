"""What a run leaves: a folder of plain files, readable while it runs and after it was killed.

    record.json         spec, labels, versions, device, git commit, status, result, timing; where it was stopped and went on;
                        digests of files of one's own that it read
    epochs.jsonl        one line an epoch: losses, metrics, LR, seconds
    trace.json          loss and LR of about a thousand steps
    checkpoint.pt       to go on from; removed when the run is finished
    schedule.safetensors  what a meta-training has learned

What differs between two equal runs (dates, seconds, interruptions) stands under `timing`, `sessions` and `seconds` only.
"""

import json
import math
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import mlrsnet
from mlrsnet._files.storage import write_atomically

FORMAT = 1
RECORD, EPOCHS, TRACE, CHECKPOINT, SCHEDULE = (
    "record.json",
    "epochs.jsonl",
    "trace.json",
    "checkpoint.pt",
    "schedule.safetensors",
)
RECIPE, STUDY = "recipe.json", "study.json"
"""What `mlrsnet reproduce` leaves above its runs: what it set out to do, or has computed."""

CHOSEN = "chosen by validation"
"""How the name of a column ends whose runs are trials of a setting, with the first seed only."""

RUNNING, FINISHED, INTERRUPTED, FAILED, DIVERGED = "running", "finished", "interrupted", "failed", "diverged"
ENDED = (FINISHED, DIVERGED)
ADDED_LATER = {"rays": 0}
"""Fields of a RunSpec that old records do not have, and what their runs were trained with."""


@dataclass(frozen=True)
class Record:
    """One run as it stands on disk, or in memory where `folder` is None."""

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
        return dict(self.data.get("result") or {})

    def comparable(self) -> dict[str, Any]:
        """Everything that two equal runs share."""
        same = {key: value for key, value in self.data.items() if key not in ("timing", "sessions")}
        epochs = [{key: value for key, value in line.items() if key != "seconds"} for line in self.epochs]
        return {"record": same, "epochs": epochs, "trace": self.trace}


def write(record: Record) -> None:
    """Bring the folder up to date, each file atomically; nothing where there is no folder."""
    if record.folder is not None:
        write_atomically(record.folder / EPOCHS, "".join(dumps(line) + "\n" for line in record.epochs).encode())
        write_atomically(record.folder / TRACE, dumps(record.trace).encode())
        write_atomically(record.folder / RECORD, dumps(record.data, indent=1).encode())


def read(folder: Path) -> Record:
    """The run in a folder; one ValueError if it is not one."""
    try:
        data = json.loads((folder / RECORD).read_text())
        if (
            not isinstance(data, dict)
            or not {"format", "status"} <= data.keys()
            or not isinstance(data.get("spec"), dict)
        ):
            raise ValueError("no run record")
        epochs = _lines((folder / EPOCHS).read_text()) if (folder / EPOCHS).is_file() else []
        trace = json.loads((folder / TRACE).read_text()) if (folder / TRACE).is_file() else {}
        record = Record(data, epochs, trace, folder)
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no run: pass a folder with a {RECORD}, or one above such folders") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{folder / RECORD} cannot be read ({error}): restore it, or delete the folder") from None
    if data["format"] != FORMAT:
        raise ValueError(
            f"{folder / RECORD} has format {data['format']!r}, this mlrsnet reads {FORMAT}: upgrade mlrsnet"
        )
    return record


def _lines(text: str) -> list[Any]:
    """JSON of each line. A last one cut in the middle is left out: somebody was still writing it."""
    *whole, rest = text.split("\n")
    lines = [json.loads(line) for line in whole if line]
    try:
        return [*lines, json.loads(rest)] if rest else lines
    except ValueError:
        return lines


def find(root: Path) -> Iterator[Path]:
    """Folders of runs at or below `root`, in order of their names."""
    if not root.is_dir():
        raise ValueError(f"there is no folder {root}: pass one that holds runs")
    return iter(sorted(path.parent for path in root.rglob(RECORD)))


def dumps(value: Any, indent: int | None = None) -> str:
    """JSON that every reader takes: what is not finite becomes null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def loads(text: str) -> Any:
    """What `dumps` wrote."""
    return json.loads(text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@cache
def commit() -> str | None:
    """The git commit this code is at, marked where files were changed; None outside a repository.

    $MLRSNET_COMMIT says it where the code was copied without its history.
    """
    if told := os.environ.get("MLRSNET_COMMIT"):
        return told
    package = Path(mlrsnet.__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=package, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # a repository around an installed package is not its own
        changed = git("status", "--porcelain", "--", ".")
        return git("rev-parse", "--short=12", "HEAD").strip() + ("-changed" if changed.strip() else "")
    except (OSError, subprocess.SubprocessError):
        return None
