"""A run's record as the loop writes it: heading, a line per epoch, trace, summary; and the run that it goes on from."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from mlrsnet import __version__
from mlrsnet.card import versions
from mlrsnet_lab import inputs, records
from mlrsnet_lab.datasets import Dataset, ExampleDataset, ImageDataset, TextDataset
from mlrsnet_lab.devices import device_name
from mlrsnet_lab.feeds import Score
from mlrsnet_lab.models import num_parameters
from mlrsnet_lab.records import RUNNING, Record
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper

TRACE_POINTS = 1000


def begin(stepper: Stepper, labels: dict[str, str], earlier: Record | None) -> Record:
    """A record without epochs; it keeps the labels, start time and sessions of an earlier part of the same run."""
    folder = stepper.folder if stepper.processes.is_first else None
    record = Record(_heading(stepper, labels), [], {"step": [], "loss": [], "lr": []}, folder)
    if earlier is not None:
        record.data.update({key: earlier.data[key] for key in ("labels", "timing")})
        record.data["sessions"] = [*earlier.data.get("sessions", []), *record.data["sessions"]]
    return record


def _heading(stepper: Stepper, labels: dict[str, str]) -> dict[str, Any]:
    dataset, digests = stepper.dataset, inputs.digests(stepper.spec, stepper.folder)
    where = {
        "versions": {"mlrsnet": __version__, **versions()},
        "device": device_name(stepper.device),
        "commit": records.commit(),
        **({"processes": stepper.processes.count} if stepper.processes.count > 1 else {}),
    }
    return {
        "format": records.FORMAT,
        "status": RUNNING,
        "spec": stepper.spec.to_dict(),
        "labels": labels,
        **where,
        "sessions": [where],
        "metric": stepper.data.metric,
        "task": {"num_classes": dataset.num_classes, **dataset.sizes, "note": dataset.note, **_of_numbers(dataset)},
        **_of_known(dataset),
        **({"digests": digests} if digests else {}),
        **({"before": stepper.before} if stepper.before else {}),
        "num_parameters": num_parameters(stepper.model),
        "steps_per_epoch": stepper.steps_per_epoch,
        "total_steps": stepper.total_steps,
        "result": {},
        "timing": {"started": now()},
    }


def _of_numbers(dataset: Dataset) -> dict[str, float]:
    """For numbers to predict: the error that a record's RMSE is to be compared with."""
    if not isinstance(dataset, ExampleDataset) or dataset.num_classes is not None:
        return {}
    return {"rmse_of_mean": _short(dataset.rmse_of_mean)}


def _of_known(dataset: Dataset) -> dict[str, Any]:
    """The digest of a well-known dataset."""
    known = isinstance(dataset, ImageDataset | TextDataset) and dataset.digest
    return {"data": {"sha256": known}} if known else {}


def add_epoch(record: Record, line: Mapping[str, Any], losses: Sequence[float], lrs: Sequence[float]) -> None:
    """Append an epoch's line, and about a thousand steps of the whole run to the trace."""
    first, trace = line["step"] - len(losses), record.trace
    stride = max(1, -(-record.data["total_steps"] // TRACE_POINTS))
    for offset in range(-first % stride, len(losses), stride):
        trace["step"].append(first + offset)
        trace["loss"].append(_short(losses[offset]))
        trace["lr"].append(_short(lrs[offset]))
    record.epochs.append({key: _short(value) for key, value in line.items()})


def scores(found: Mapping[str, Score]) -> dict[str, float]:
    """Loss and metric of every part, as an epoch's line holds them."""
    line = {}
    for part, score in found.items():
        line[f"{part}_loss"] = score.loss
        line[f"{part}_metric"] = score.metric
    return line


def set_status(record: Record, status: str, seconds: float) -> None:
    """Update status, result and timing; `seconds` is the run's total so far."""
    data, per_epoch = record.data, [line["seconds"] for line in record.epochs]
    data["status"] = status
    data["result"] = summarise(record.epochs, data["metric"]["better"])
    data["timing"] |= {
        "ended": now(),
        "seconds": seconds,
        "train_seconds": sum(per_epoch),
        "seconds_per_epoch": median(per_epoch) if per_epoch else None,
    }


def summarise(epochs: Sequence[Mapping[str, Any]], better: str) -> dict[str, Any]:
    """The last evaluated epoch, with the best one beside it."""
    evaluated = [line for line in epochs if line.get("test_metric") is not None]
    if not evaluated:
        return {}
    last = evaluated[-1]
    numbers = [line for line in evaluated if not math.isnan(line["test_metric"])] or evaluated
    best = (max if better == "higher" else min)(numbers, key=lambda line: line["test_metric"])
    return {
        "epoch": last["epoch"],
        "last": last["test_metric"],
        "best": best["test_metric"],
        "best_epoch": best["epoch"],
        **{name: last[name] for name in ("test_loss", "val_loss", "val_metric", "train_loss")},
    }


def now() -> str:
    """UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _short(value: Any) -> Any:
    """Six digits are enough for every table, and keep records small."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def earlier_run(folder: Path | None, spec: RunSpec) -> Record | None:
    """The run that the folder already holds, or None. Refuses a run of another spec, or of files that have changed since."""
    if folder is None or not records.holds(folder):
        return None
    earlier = records.read(folder)
    if earlier.spec != spec.to_dict():
        different = [key for key, value in spec.to_dict().items() if earlier.spec.get(key) != value]
        raise ValueError(
            f"{folder} holds a run with another spec (different: {', '.join(different)}): use another folder, or delete it"
        )
    kept, read = earlier.entry("digests"), inputs.files(spec, folder)
    changed = [str(path) for name, path in read.items() if name in kept and inputs.digest(path) != kept[name]]
    if changed:
        raise ValueError(
            f"{folder} holds a run with another file (changed since: {', '.join(changed)}): use another folder, or delete it"
        )
    return earlier


def check_data(folder: Path, earlier: Record | None, now: Record) -> None:
    """Refuse to continue with a dataset that has changed since the run started: other sizes, or another digest."""
    parts = ("train", "val", "test")
    before = earlier.entry("task") if earlier is not None else {}
    if any(before.get(part, now.data["task"][part]) != now.data["task"][part] for part in parts):
        then, found = ([task.get(part) for part in parts] for task in (before, now.data["task"]))
        raise ValueError(
            f"the run in {folder} was started with {then} examples to train, validate and test on, got {found}: restore the "
            "data, or delete the folder to start over"
        )
    if earlier is not None and earlier.entry("data") and earlier.entry("data") != now.entry("data"):
        kept, got = (record.entry("data").get("sha256") for record in (earlier, now))
        raise ValueError(
            f"the run in {folder} was started with data of the digest {kept}, got {got}: restore the data, or delete the "
            "folder to start over"
        )
