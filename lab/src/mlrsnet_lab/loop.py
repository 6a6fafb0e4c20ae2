"""The lab's only training loop: `RunSpec` -> `run()` -> record.

Nothing is selected on test data: the last epoch's metric is the result, and the best epoch's is reported beside it.
"""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from mlrsnet_lab import checkpoint, records, run_record
from mlrsnet_lab.devices import reproducible, resolve
from mlrsnet_lab.lock import RunInUseError, held
from mlrsnet_lab.processes import current
from mlrsnet_lab.records import DIVERGED, FAILED, FINISHED, INTERRUPTED, RUNNING, Record
from mlrsnet_lab.run_record import check_data, earlier_run
from mlrsnet_lab.settings import DEFAULT, Settings
from mlrsnet_lab.signals import PoliteStop
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper
from mlrsnet_lab.watch import Watcher
from mlrsnet_lab.width import along_rays


def run(
    spec: RunSpec,
    folder: Path | None = None,
    settings: Settings = DEFAULT,
    *,
    labels: Mapping[str, str] | None = None,
    watchers: Sequence[Watcher] = (),
) -> Record:
    """Train as the spec says and return the record.

    With a folder, the run is saved there. If it is stopped or killed, the next call with the same arguments continues from the
    last checkpoint and ends with the same record. A finished run is returned as it is. A run that read your own schedule or
    .npz file is refused if that file has changed since.

    Under torchrun (see `processes.joined`), all processes call it with the same arguments. The first one writes and tells the
    watchers.

    Args:
        spec: what to train.
        folder: where to save the run; nothing is saved if None.
        settings: on which device, where the data is, how often to write a checkpoint.
        labels: for the report, such as the row of a table.
        watchers: are told of progress.

    Raises:
        KeyboardInterrupt: on Ctrl-C or SIGTERM; the state at that step is saved in the folder.
        RunInUseError: if another process trains in the folder.

    >>> record = run(RunSpec(task="digits", model="mlp", epochs=1), settings=Settings(device="cpu"))
    >>> record.status, record.result["epoch"]
    ('finished', 1)
    """
    folder, processes = Path(folder) if folder is not None else None, current()
    watchers = watchers if processes.is_first else ()
    earlier = earlier_run(folder, spec)
    if earlier is not None and earlier.ended:
        if folder is not None and folder.is_dir() and processes.is_first:
            with suppress(OSError, RunInUseError), held(folder):  # a folder that can only be read, or is being finished
                _tidy(folder)
        return _ended(earlier, watchers)
    place = resolve(settings.device)
    with reproducible(place, spec.deterministic, spec.precision == "fp32"):
        stepper = Stepper(spec, place, settings.root, folder, processes)
        try:
            with held(folder if processes.is_first else None):
                earlier = earlier_run(
                    folder, spec
                )  # again: it may have been written while this process waited or built
                if earlier is not None and earlier.ended:
                    return _ended(earlier, watchers)
                return Loop(stepper, earlier, dict(labels or {}), watchers, settings.checkpoint_seconds).run()
        finally:
            stepper.close()


def _tidy(folder: Path) -> None:
    """Do what a killed process could not do any more at the end of its run."""
    records.restore(folder)
    checkpoint.remove(folder)


def _ended(record: Record, watchers: Sequence[Watcher]) -> Record:
    """A run with nothing left to train."""
    for watcher in watchers:
        watcher.begin(record, record.data["total_steps"], record.data["total_steps"])
        watcher.end(record)
    return record


class Loop:
    """A stepper, the run's record and its watchers."""

    def __init__(
        self,
        stepper: Stepper,
        earlier: Record | None,
        labels: dict[str, str],
        watchers: Sequence[Watcher],
        checkpoint_seconds: float,
    ) -> None:
        self.stepper, self.watchers, self.checkpoint_seconds = stepper, watchers, checkpoint_seconds
        self.processes = stepper.processes
        self.record, folder = run_record.begin(stepper, labels, earlier), stepper.folder
        self.seconds = 0.0  # spent before this process
        self.epoch_seconds = 0.0  # spent on this epoch before its last checkpoint
        self.clock = self.saved_at = self.told_at = time.perf_counter()
        if folder is not None and checkpoint.exists(folder):
            check_data(folder, earlier, self.record)
            self.record, (self.seconds, self.epoch_seconds) = checkpoint.load(folder, stepper, self.record)
        self.processes.check_same("the step to continue from", stepper.step_count)
        self.record.data["sessions"][-1]["from_step"] = stepper.step_count
        records.write(self.record)  # a folder that cannot be written fails before the work, not after

    def run(self) -> Record:
        """Train to the end, or until Ctrl-C."""
        for watcher in self.watchers:
            watcher.begin(self.record, self.stepper.step_count, self.stepper.total_steps)
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
        if any(self.processes.any(stop.asked)):  # during the last evaluation
            raise KeyboardInterrupt
        return self.record

    def _epochs(self, stop: PoliteStop) -> str:
        stepper = self.stepper
        while self._written_up_to() < stepper.total_steps:
            begin = time.perf_counter()
            for _ in range(self._steps_left()):
                stepper.step()
                due, asked = self.processes.any(self._now_and_then(), stop.asked)  # in all processes at the same step
                if due or asked:
                    self._save(begin)
                    begin = self.saved_at
                    if asked:
                        raise KeyboardInterrupt
            if not self._end_epoch(begin):
                return DIVERGED
            if stepper.step_count < stepper.total_steps and any(self.processes.any(self._is_time())):
                self._save()
        self._measure_width()
        return FINISHED

    def _written_up_to(self) -> int:
        """The step at which the last epoch was written down."""
        return int(self.record.epochs[-1]["step"]) if self.record.epochs else 0

    def _steps_left(self) -> int:
        """Steps left in this epoch; 0 if the run was stopped between an epoch's last step and its evaluation."""
        step, whole = self.stepper.step_count, self.stepper.steps_per_epoch
        return whole if step == self._written_up_to() else -step % whole

    def _now_and_then(self) -> bool:
        """Tell the watchers every 64 steps or every second; return whether a checkpoint is due."""
        if self.stepper.step_count % 64 and time.perf_counter() - self.told_at < 1:
            return False
        self.told_at = time.perf_counter()
        for watcher in self.watchers:
            watcher.steps(self.stepper.step_count)
        return self._is_time()

    def _is_time(self) -> bool:
        return self.record.folder is not None and time.perf_counter() - self.saved_at >= self.checkpoint_seconds

    def _end_epoch(self, begin: float) -> bool:
        """Evaluate and write down; return False if the loss is no longer finite."""
        stepper = self.stepper
        losses, lrs = stepper.trace.read()  # waits for the device, so that the time is right
        seconds, self.epoch_seconds = self.epoch_seconds + time.perf_counter() - begin, 0.0
        line: dict[str, Any] = {
            "epoch": stepper.step_count // stepper.steps_per_epoch,
            "step": stepper.step_count,
            "train_loss": fmean(losses),
            "lr": lrs[-1],
            "seconds": seconds,
        }
        scalars = stepper.method.scalars()  # of the epoch, before the method learns how it went
        due = line["epoch"] % stepper.spec.eval_every == 0 or stepper.step_count == stepper.total_steps
        if due or stepper.method.reads_val_loss or not math.isfinite(line["train_loss"]):
            line |= run_record.scores(stepper.evaluate("val", "test"))
            stepper.method.end_epoch(line["val_loss"])
        line |= scalars
        if lost := sum(not math.isfinite(loss) for loss in losses):
            line["nonfinite_losses"] = lost
        run_record.add_epoch(self.record, line, losses, lrs)
        stepper.trace.restore([], [])
        for watcher in self.watchers:
            watcher.epoch(line, losses, lrs)
        return math.isfinite(line["train_loss"]) and math.isfinite(line.get("val_loss", 0.0))

    def _measure_width(self) -> None:
        stepper, rays = self.stepper, self.stepper.spec.rays
        if rays:
            found = along_rays(stepper.model, lambda: stepper.evaluate("train", "test"), rays, stepper.spec.seed)
            self.record.data["rays"] = found

    def _save(self, since: float | None = None) -> None:
        """Write a checkpoint and the record that belongs to it; `since` is when the epoch's current part began."""
        if self.stepper.folder is None:
            return
        if since is not None:
            self.stepper.trace.read()  # waits for the device, so that the time is right
            self.epoch_seconds += time.perf_counter() - since
        checkpoint.save(self.record.folder, self.stepper, self.record, (self._elapsed(), self.epoch_seconds))
        run_record.set_status(self.record, RUNNING, self._elapsed())
        records.write(self.record)
        self.saved_at = time.perf_counter()

    def _close(self, status: str) -> None:
        run_record.set_status(self.record, status, self._elapsed())
        try:
            self._write_end()
        finally:  # on a full disk too, or progress bars would stay on the screen
            for watcher in self.watchers:
                watcher.end(self.record)

    def _write_end(self) -> None:
        folder = self.record.folder
        if folder is not None and self.record.ended:
            self.stepper.method.leave(folder)
        records.write(self.record)
        if folder is not None and self.record.ended:
            checkpoint.remove(folder)

    def _elapsed(self) -> float:
        return self.seconds + time.perf_counter() - self.clock
