"""The lab's only training loop: `RunSpec` -> `run()` -> record.

Selects nothing on test data: the last epoch's metric is the result, the best epoch's stands beside it.
"""

import io
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from mlrsnet import __version__
from mlrsnet._files.storage import write_atomically
from mlrsnet.card import versions
from mlrsnet.lab import inputs, records
from mlrsnet.lab.lock import held
from mlrsnet.lab.models import num_parameters
from mlrsnet.lab.records import DIVERGED, FAILED, FINISHED, INTERRUPTED, RUNNING, Record
from mlrsnet.lab.signals import PoliteStop
from mlrsnet.lab.spec import RunSpec
from mlrsnet.lab.training import Training, reproducible
from mlrsnet.lab.watch import Watcher
from mlrsnet.lab.width import along_rays

TRACE_POINTS = 1000
ACCURACY = {"name": "accuracy", "unit": "%", "better": "higher"}
PERPLEXITY = {"name": "perplexity", "unit": "", "better": "lower"}


def run(
    spec: RunSpec,
    folder: Path | None = None,
    *,
    device: str = "auto",
    root: Path | None = None,
    labels: Mapping[str, str] | None = None,
    watchers: Sequence[Watcher] = (),
    checkpoint_seconds: float = 20.0,
) -> Record:
    """Train as the spec says and return the record.

    With a folder, everything is kept there: a run that was killed or stopped goes on where its last checkpoint is and ends
    with the same record; a finished one is returned as it is. One that read a schedule or an .npz of one's own is refused
    when that file has changed.

    Args:
        device: cpu, cuda, cuda:1, ..., or auto: a GPU where there is one.
        root: where the data is; see `tasks.load`.
        labels: for the report, such as the row of a table.
        watchers: told of progress.
        checkpoint_seconds: at most about so much work is lost by a kill.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM; the state at that step is in the folder.
        RunInUseError: another process trains in the folder.

    >>> record = run(RunSpec(task="digits", model="mlp", epochs=1), device="cpu")
    >>> record.status, record.result["epoch"]
    ('finished', 1)
    """
    folder = Path(folder) if folder is not None else None
    earlier = _earlier(folder, spec)
    if earlier is not None and earlier.ended:
        for watcher in watchers:
            watcher.begin(earlier, earlier.data["total_steps"], earlier.data["total_steps"])
            watcher.end(earlier)
        return earlier
    place = resolve(device)
    with reproducible(place, spec.deterministic):
        training = Training(spec, place, root, folder)
        try:
            with held(folder):
                return Loop(training, folder, earlier, dict(labels or {}), list(watchers), checkpoint_seconds).run()
        finally:
            training.close()


def resolve(device: str) -> torch.device:
    """The device that a word means; one clear error where there is none."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
    except RuntimeError:
        place = torch.device("meta")
    if place.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {device!r}")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {device!r} is not there: torch sees {torch.cuda.device_count()} CUDA devices; use cpu or auto"
        )
    return torch.device("cuda", place.index or 0) if place.type == "cuda" else place


class Loop:
    """A training, its folder and its watchers."""

    def __init__(
        self,
        training: Training,
        folder: Path | None,
        earlier: Record | None,
        labels: dict[str, str],
        watchers: list[Watcher],
        checkpoint_seconds: float,
    ) -> None:
        self.training, self.watchers, self.checkpoint_seconds = training, watchers, checkpoint_seconds
        self.record = Record(_heading(training, labels), [], {"step": [], "loss": [], "lr": []}, folder)
        if earlier is not None:
            self.record.data.update({key: earlier.data[key] for key in ("labels", "timing")})
            self.record.data["sessions"] = [*earlier.data.get("sessions", []), *self.record.data["sessions"]]
        self.stride = max(1, -(-training.total_steps // TRACE_POINTS))
        self.seconds = self.epoch_seconds = 0.0  # before this process; of this epoch, before the last checkpoint in it
        self.clock = self.saved_at = self.told_at = time.perf_counter()
        if folder is not None and (folder / records.CHECKPOINT).is_file():
            _check_data(folder, earlier, self.record)
            self._resume(folder / records.CHECKPOINT)
        self.record.data["sessions"][-1]["from_step"] = training.step_count
        records.write(self.record)  # an unwritable folder is told before the work, not after

    def run(self) -> Record:
        """To the end of the spec, or of the user's patience."""
        for watcher in self.watchers:
            watcher.begin(self.record, self.training.step_count, self.training.total_steps)
        status, stop = FAILED, PoliteStop()
        try:
            with stop:
                status = self._epochs(stop)
        except KeyboardInterrupt:
            status = INTERRUPTED
            raise
        except Exception as error:
            self.record.data["error"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._close(status)
        if stop.asked:  # while the last epoch was evaluated
            raise KeyboardInterrupt
        return self.record

    def _epochs(self, stop: PoliteStop) -> str:
        training = self.training
        while self._written_up_to() < training.total_steps:
            begin = time.perf_counter()
            for _ in range(self._steps_left()):
                training.step()
                if self._now_and_then() or stop.asked:
                    self._save(begin)
                    begin = self.saved_at
                    if stop.asked:
                        raise KeyboardInterrupt
            if not self._end_epoch(begin):
                return DIVERGED
            if training.step_count < training.total_steps and self._is_time():
                self._save()
        self._measure_width()
        return FINISHED

    def _written_up_to(self) -> int:
        """The step that the last line of the epochs was written at."""
        return int(self.record.epochs[-1]["step"]) if self.record.epochs else 0

    def _steps_left(self) -> int:
        """Of this epoch; none where the run was stopped on its last step, before its evaluation."""
        step, whole = self.training.step_count, self.training.steps_per_epoch
        return whole if step == self._written_up_to() else -step % whole

    def _measure_width(self) -> None:
        training, rays = self.training, self.training.spec.rays
        if rays:
            found = along_rays(training.model, lambda: training.evaluate("train", "test"), rays, training.spec.seed)
            self.record.data["rays"] = found

    def _now_and_then(self) -> bool:
        """Tell the watchers, every 64 steps or every second; whether it is time for a checkpoint."""
        if self.training.step_count % 64 and time.perf_counter() - self.told_at < 1:
            return False
        self.told_at = time.perf_counter()
        for watcher in self.watchers:
            watcher.steps(self.training.step_count)
        return self._is_time()

    def _is_time(self) -> bool:
        return self.record.folder is not None and time.perf_counter() - self.saved_at >= self.checkpoint_seconds

    def _end_epoch(self, begin: float) -> bool:
        """Evaluate and write down; False if the training has no finite loss any more."""
        training = self.training
        losses, lrs = training.trace.read()  # waits for the device, so that the time is right
        seconds, self.epoch_seconds = self.epoch_seconds + time.perf_counter() - begin, 0.0
        line: dict[str, Any] = {
            "epoch": training.step_count // training.steps_per_epoch,
            "step": training.step_count,
            "train_loss": fmean(losses),
            "lr": lrs[-1],
            "seconds": seconds,
        }
        due = line["epoch"] % training.spec.eval_every == 0 or training.step_count == training.total_steps
        if due or training.decider.reads_val_loss or not math.isfinite(line["train_loss"]):
            line |= self._evaluate()
        line |= training.decider.scalars()
        self._keep(line, losses, lrs)
        training.trace.restore([], [])
        for watcher in self.watchers:
            watcher.epoch(line, losses, lrs)
        return math.isfinite(line["train_loss"]) and math.isfinite(line.get("val_loss", 0.0))

    def _evaluate(self) -> dict[str, float]:
        training, line = self.training, {}
        for part, found in training.evaluate("val", "test").items():
            line[f"{part}_loss"] = found.loss
            line[f"{part}_metric"] = _perplexity(found.loss) if training.is_text else found.accuracy
        training.decider.end_epoch(line["val_loss"])
        return line

    def _keep(self, line: dict[str, Any], losses: list[float], lrs: list[float]) -> None:
        first, trace = line["step"] - len(losses), self.record.trace
        for offset in range(-first % self.stride, len(losses), self.stride):
            trace["step"].append(first + offset)
            trace["loss"].append(_short(losses[offset]))
            trace["lr"].append(_short(lrs[offset]))
        self.record.epochs.append({key: _short(value) for key, value in line.items()})

    def _save(self, since: float | None = None) -> None:
        """A checkpoint, and the records that belong to it."""
        folder = self.record.folder
        if folder is None:
            return
        training = self.training.state_dict()  # waits for the device, so that the time is right
        if since is not None:
            self.epoch_seconds += time.perf_counter() - since
        content = io.BytesIO()
        state = {
            "spec": self.record.spec,
            "device": self.training.device.type,
            "training": training,
            "epochs": self.record.epochs,
            "trace": self.record.trace,
            "seconds": [self._elapsed(), self.epoch_seconds],
        }
        torch.save(state, content)
        write_atomically(folder / records.CHECKPOINT, content.getvalue())
        self._describe(RUNNING)
        records.write(self.record)
        self.saved_at = time.perf_counter()

    def _resume(self, path: Path) -> None:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            if state["spec"] != self.record.spec:
                raise ValueError("another spec")
            begun_on = state["device"]
            if begun_on == self.training.device.type:
                self.training.load_state_dict(state["training"])
            self.record = replace(self.record, epochs=state["epochs"], trace=state["trace"])
            self.seconds, self.epoch_seconds = state["seconds"]
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # bytes that are no checkpoint can fail in any way
            raise ValueError(
                f"{path} is not a checkpoint of this run ({type(error).__name__}): delete it to begin anew"
            ) from None
        if begun_on != self.training.device.type:
            raise ValueError(
                f"the run in {path.parent} was begun on {begun_on}, got the device {self.training.device.type}: go on "
                f"with --device {begun_on}, or delete {path.name} to begin anew"
            )

    def _close(self, status: str) -> None:
        self._describe(status)
        try:
            self._write_end()
        finally:  # also on a full disk, or progress bars would stay
            for watcher in self.watchers:
                watcher.end(self.record)

    def _write_end(self) -> None:
        folder = self.record.folder
        if folder is not None and self.record.ended:
            self.training.decider.leave(folder)
        records.write(self.record)
        if folder is not None and self.record.ended:
            (folder / records.CHECKPOINT).unlink(missing_ok=True)

    def _describe(self, status: str) -> None:
        data, epochs = self.record.data, self.record.epochs
        seconds = [line["seconds"] for line in epochs]
        data["status"] = status
        data["result"] = summarise(epochs, data["metric"]["better"])
        data["timing"] |= {
            "ended": _now(),
            "seconds": self._elapsed(),
            "train_seconds": sum(seconds),
            "seconds_per_epoch": median(seconds) if seconds else None,
        }

    def _elapsed(self) -> float:
        return self.seconds + time.perf_counter() - self.clock


def summarise(epochs: Sequence[Mapping[str, Any]], better: str) -> dict[str, Any]:
    """The last evaluated epoch, and the best one beside it."""
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


def device_name(device: torch.device) -> str:
    """In words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def _heading(training: Training, labels: dict[str, str]) -> dict[str, Any]:
    task, digests = training.task, inputs.digests(training.spec, training.folder)
    where = {
        "versions": {"mlrsnet": __version__, **versions()},
        "device": device_name(training.device),
        "commit": records.commit(),
    }
    return {
        "format": records.FORMAT,
        "status": RUNNING,
        "spec": training.spec.to_dict(),
        "labels": labels,
        **where,
        "sessions": [where],
        "metric": PERPLEXITY if training.is_text else ACCURACY,
        "task": {"num_classes": task.num_classes, **task.sizes, "note": task.note},
        **({"digests": digests} if digests else {}),
        "num_parameters": num_parameters(training.model),
        "steps_per_epoch": training.steps_per_epoch,
        "total_steps": training.total_steps,
        "result": {},
        "timing": {"started": _now()},
    }


def _earlier(folder: Path | None, spec: RunSpec) -> Record | None:
    """The run that the folder holds already; another one's folder is refused."""
    if folder is None or not records.holds(folder):
        return None
    earlier = records.read(folder)
    if earlier.spec != spec.to_dict():
        different = [key for key, value in spec.to_dict().items() if earlier.spec.get(key) != value]
        raise ValueError(
            f"{folder} holds a run with another spec (different: {', '.join(different)}): use another folder, or delete it"
        )
    kept, read = earlier.data.get("digests", {}), inputs.files(spec, folder)
    changed = [str(path) for name, path in read.items() if name in kept and inputs.digest(path) != kept[name]]
    if changed:
        raise ValueError(
            f"{folder} holds a run with another file (changed since: {', '.join(changed)}): use another folder (--out), or "
            "delete it"
        )
    return earlier


def _check_data(folder: Path, earlier: Record | None, now: Record) -> None:
    """A training does not go on with other parts of the data, such as after a change of the defaults or of a folder."""
    parts = ("train", "val", "test")
    before = earlier.data.get("task", {}) if earlier is not None else {}
    if any(before.get(part, now.data["task"][part]) != now.data["task"][part] for part in parts):
        then, found = ([task.get(part) for part in parts] for task in (before, now.data["task"]))
        raise ValueError(
            f"the run in {folder} was begun with {then} examples to train, validate and test on, got {found}: restore the "
            "data, or delete the folder to begin anew"
        )


def _perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf


def _short(value: Any) -> Any:
    """Six digits: enough for every table, and records stay small."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
