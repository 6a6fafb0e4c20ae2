"""A run's checkpoint: a training and its record so far, in one file. The one before it stays beside it."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from mlrsnet.files import checkpoints
from mlrsnet.files.untrusted import reason
from mlrsnet_lab.files import fallback
from mlrsnet_lab.files.fallback import DamagedError, previous
from mlrsnet_lab.records import CHECKPOINT, Record
from mlrsnet_lab.records.record import check
from mlrsnet_lab.stepper import Stepper

Seconds = tuple[float, float]
"""Of the whole run, and of the epoch in progress."""

NO_CHECKPOINT = ("a checkpoint of this run", "delete {it} to start over")


def save(folder: Path | None, stepper: Stepper, record: Record, seconds: Seconds) -> None:
    """Write it atomically: a kill leaves the previous checkpoint. All processes have to call it, and one has the folder."""
    state = {
        "spec": record.spec,
        "device": stepper.device.type,
        "training": stepper.state_dict(),
        "epochs": record.epochs,
        "trace": record.trace,
        "seconds": list(seconds),
    }
    if folder is not None:
        write(folder, state)


def load(folder: Path, stepper: Stepper, record: Record) -> tuple[Record, Seconds]:
    """Restore the stepper; return the record as it was then, and the seconds spent."""
    device, state = stepper.device.type, read(folder)
    try:
        if state["spec"] != record.spec:
            raise ValueError("another spec")
        started_on, count = state["device"], len(state["training"].get("processes", "1"))
        if (started_on, count) == (device, stepper.processes.count):
            stepper.load_state_dict(state["training"])
        check(record.data, str(folder / CHECKPOINT), state["epochs"], state["trace"])
        if not all(isinstance(line, dict) for line in state["epochs"]):
            raise ValueError("epochs that are no objects")
        found = replace(record, epochs=state["epochs"], trace=state["trace"])
        seconds, epoch_seconds = state["seconds"]
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a file that is not a checkpoint can fail in any way
        raise other(folder, error) from None
    if started_on != device:
        raise ValueError(
            f"the run in {folder} was started on {started_on}, got the device {device}: continue with "
            f"--device {started_on}, or delete {_names(folder)} to start over"
        )
    if count != stepper.processes.count:
        raise ValueError(
            f"the run in {folder} was started with {count} processes, got {stepper.processes.count}: continue with "
            f"{count}, or delete {_names(folder)} to start over"
        )
    return found, (seconds, epoch_seconds)


def exists(folder: Path) -> bool:
    """Whether there is a checkpoint to continue from."""
    return fallback.exists(folder / CHECKPOINT)


def write(folder: Path, state: dict[str, Any]) -> None:
    """Write a state that `read` returns, with a digest."""
    content = io.BytesIO()
    torch.save(state, content)
    fallback.write(folder / CHECKPOINT, content)


def read(folder: Path) -> dict[str, Any]:
    """The newest state that is not damaged; one ValueError if there is none."""
    try:
        return fallback.read_newest(folder / CHECKPOINT, _plain)
    except DamagedError as error:
        raise error.told(*NO_CHECKPOINT) from None


def other(folder: Path, error: Exception) -> ValueError:
    """What to raise if the state that `read` returned is not one of this run."""
    return DamagedError(dict.fromkeys(_there(folder), f"{type(error).__name__}: {reason(error)}")).told(*NO_CHECKPOINT)


def remove(folder: Path) -> None:
    """Remove all checkpoints: the run has ended."""
    fallback.remove(folder / CHECKPOINT)


def _names(folder: Path) -> str:
    return " and ".join(path.name for path in _there(folder))


def _there(folder: Path) -> list[Path]:
    return [path for path in (folder / CHECKPOINT, previous(folder / CHECKPOINT)) if path.is_file()]


def _plain(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = checkpoints.load(path)
    return state
