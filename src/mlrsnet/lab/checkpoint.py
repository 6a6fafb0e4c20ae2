"""A run's checkpoint: a training and its record so far, in one file."""

import io
from dataclasses import replace
from pathlib import Path

import torch

from mlrsnet._files.storage import write_atomically
from mlrsnet.lab.records import CHECKPOINT, Record
from mlrsnet.lab.stepper import Stepper

Seconds = tuple[float, float]
"""Of the whole run, and of the epoch in progress."""


def save(folder: Path, stepper: Stepper, record: Record, seconds: Seconds) -> None:
    """Write it atomically: a kill leaves the previous checkpoint."""
    state = {
        "spec": record.spec,
        "device": stepper.device.type,
        "training": stepper.state_dict(),
        "epochs": record.epochs,
        "trace": record.trace,
        "seconds": list(seconds),
    }
    content = io.BytesIO()
    torch.save(state, content)
    write_atomically(folder / CHECKPOINT, content.getvalue())


def load(folder: Path, stepper: Stepper, record: Record) -> tuple[Record, Seconds]:
    """Restore the stepper; return the record as it was then, and the seconds spent."""
    path, device = folder / CHECKPOINT, stepper.device.type
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if state["spec"] != record.spec:
            raise ValueError("another spec")
        started_on = state["device"]
        if started_on == device:
            stepper.load_state_dict(state["training"])
        found = replace(record, epochs=state["epochs"], trace=state["trace"])
        seconds, epoch_seconds = state["seconds"]
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a file that is not a checkpoint can fail in any way
        raise ValueError(
            f"{path} is not a checkpoint of this run ({type(error).__name__}): delete it to start over"
        ) from None
    if started_on != device:
        raise ValueError(
            f"the run in {folder} was started on {started_on}, got the device {device}: continue with "
            f"--device {started_on}, or delete {path.name} to start over"
        )
    return found, (seconds, epoch_seconds)
