"""A run as the report sees it: every value from its files is checked here, once; and curves over several seeds."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mlrsnet.files.storage import ScheduleError
from mlrsnet.nets import unroll
from mlrsnet.schedule import Schedule
from mlrsnet_lab import records
from mlrsnet_lab.records import Record
from mlrsnet_lab.report.numbers import number

Points = tuple[NDArray[np.float64], NDArray[np.float64]]
"""x, growing, and a finite y for each."""

LEARNED_ROW, LEARNED_SCHEDULES = "MLR-SNet", ("learned", "mlr-snet")
ALONE_LOSS, ALONE_STEPS = 5.0, 200
"""The paper's loss, and enough steps for a network to settle."""

LONGEST_ERROR = 160
MOST_POINTS = 500
"""Of a curve: more than a panel has pixels."""


@dataclass(frozen=True)
class Metric:
    """What is measured on test data."""

    name: str = "accuracy"
    unit: str = "%"
    higher_is_better: bool = True

    @property
    def title(self) -> str:
        """In words, with the unit."""
        return f"test {self.name} ({self.unit})" if self.unit else f"test {self.name}"


@dataclass(frozen=True)
class Run:
    """One run; `folder` is relative to the folder of the report, so that moving both changes nothing."""

    folder: str
    record: Record

    @property
    def status(self) -> str:
        """As the run left it."""
        return self.record.status

    @cached_property
    def spec(self) -> dict[str, Any]:
        """What was asked for."""
        return table(self.record.spec)

    @cached_property
    def labels(self) -> dict[str, str]:
        """Where `mlrsnet reproduce` put this run; empty for other runs."""
        return {key: str(value) for key, value in table(self.record.data.get("labels")).items() if value is not None}

    @property
    def seed(self) -> str:
        """As text, because a file may hold anything."""
        return str(self.spec.get("seed", "?"))

    @property
    def learned(self) -> bool:
        """Whether a learned schedule sets its LR."""
        return str(self.spec.get("schedule", "")).startswith(LEARNED_SCHEDULES)

    @property
    def metric(self) -> Metric:
        """Accuracy if the record does not say."""
        metric = table(self.record.data.get("metric"))
        if not metric:
            return Metric()
        return Metric(str(metric.get("name")), str(metric.get("unit") or ""), metric.get("better") != "lower")

    def result(self, key: str) -> float | None:
        """One number of the result."""
        return number(table(self.record.data.get("result")).get(key))

    def timing(self, key: str) -> Any:
        """One entry of the timing: a date or a number."""
        return table(self.record.data.get("timing")).get(key)

    @property
    def counts(self) -> bool:
        """Whether it has ended and has a result: only such runs are averaged."""
        return self.record.ended and self.result("last") is not None

    @property
    def train_loss(self) -> float | None:
        """Of the last epoch."""
        losses = self.series("train_loss")[1]
        loss = self.result("train_loss")
        return float(losses[-1]) if loss is None and len(losses) else loss

    @property
    def epoch(self) -> int:
        """The last epoch that it reached."""
        return max([int(self.result("epoch") or 0), *(int(epoch) for epoch in self.lines)])

    @property
    def remark(self) -> str:
        """What a reader must know about its numbers; empty for a finished run."""
        where = f"epoch {self.epoch} of {self.spec.get('epochs', '?')}"
        if self.status == records.FINISHED:
            return "" if self.counts else "finished, without a test result"
        if self.status == records.DIVERGED:
            return f"diverged at {where}, {'in the mean' if self.counts else 'no number, so not in the mean'}"
        if self.status == records.FAILED:
            return f"failed: {self.error or 'no reason given'} ({where})"
        return f"{where}, {self.status}"

    @property
    def error(self) -> str:
        """What went wrong in one line, shortened: the first of a message, the last of a traceback."""
        lines = str(self.record.data.get("error") or "").strip().splitlines() or [""]
        line = lines[-1 if lines[0].startswith("Traceback") else 0].strip()
        return line if len(line) <= LONGEST_ERROR else line[: LONGEST_ERROR - 3] + "..."

    @cached_property
    def lines(self) -> dict[float, dict[str, Any]]:
        """Lines by epoch, in order; a resumed run may have written one twice, then the later counts."""
        by_epoch = {number(line.get("epoch")): line for line in map(table, self.record.epochs)}
        return {epoch: by_epoch[epoch] for epoch in sorted(key for key in by_epoch if key is not None)}

    def series(self, key: str) -> Points:
        """One column of the epochs, as far as it is there and finite."""
        return points((epoch, line.get(key)) for epoch, line in self.lines.items())

    def ray(self, part: str) -> Points:
        """Loss over the distance from the solution, the mean over rays; see `width.py`."""
        rays = table(self.record.data.get("rays"))
        losses = [line for line in rays.get(part) or [] if isinstance(line, list)]
        means = [sum(map(float, column)) / len(column) for column in zip(*losses, strict=False)]
        return points(zip(rays.get("distance") or [], means, strict=False))

    def alone(self) -> list[Points]:
        """The output of each network that the run learned, while the loss stays the same (Fig. 6a of the paper)."""
        folder = self.record.folder
        if folder is None or not (folder / records.SCHEDULE).is_file():
            return []
        try:
            phases = Schedule.read(folder / records.SCHEDULE).phases
        except ScheduleError:
            return []
        losses = torch.full((ALONE_STEPS,), ALONE_LOSS)
        return [points(enumerate(unroll([net], losses.to(net.initial_state())).tolist())) for net in phases]

    def lr(self) -> Points:
        """LR over epochs, from the trace of steps, or from the epochs if there is no trace."""
        steps_per_epoch = number(self.record.data.get("steps_per_epoch"))
        trace = table(self.record.trace)
        steps, rates = trace.get("step"), trace.get("lr")
        if not steps_per_epoch or not isinstance(steps, list) or not isinstance(rates, list) or not steps:
            return self.series("lr")
        x, y = points(zip(steps, rates, strict=False))
        return x / steps_per_epoch, y


def read(folder: Path, root: Path) -> Run:
    """The run in a folder below `root`; one ValueError if it cannot be used."""
    record = records.read(folder)
    if not isinstance(record.data["spec"], dict) or not isinstance(record.data["status"], str):
        raise ValueError(f"{folder / records.RECORD} has no usable spec or status: restore it, or delete the folder")
    return Run(folder.relative_to(root).as_posix(), record)


def table(value: Any) -> dict[str, Any]:
    """A JSON object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def points(pairs: Iterable[tuple[Any, Any]]) -> Points:
    """Pairs of numbers as arrays; pairs that are not finite are left out."""
    numbers = ((number(x), number(y)) for x, y in pairs)
    array = np.array([(x, y) for x, y in numbers if x is not None and y is not None], dtype=np.float64).reshape(-1, 2)
    array = array[np.argsort(array[:, 0], kind="stable")]
    return array[:, 0], array[:, 1]


@dataclass(frozen=True)
class Curve:
    """At each x the mean, lowest and highest over the seeds that reached it."""

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def over_seeds(seeds: list[Points]) -> Curve | None:
    """One curve from several; None if there is nothing to draw."""
    there = [(x, y) for x, y in seeds if len(x)]
    if not there:
        return None
    x = np.unique(np.concatenate([x for x, _ in there]))
    x = x[np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).round().astype(int))]
    # Seeds may have been recorded at different steps, and some end early; beyond its end a seed is left out.
    y = np.stack([np.interp(x, *one, left=np.nan, right=np.nan) for one in there])
    with np.errstate(over="ignore"):  # a diverged run may end at 1e308
        return Curve(x, np.nanmean(y, axis=0), np.nanmin(y, axis=0), np.nanmax(y, axis=0))
