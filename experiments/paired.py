"""Two rows of a column, seed by seed: which is better, by how much, and whether that is more than seeds differ by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.stats import t

from experiments import results
from mlrsnet_lab.records import DIVERGED, Record

FEWEST = 3
"""Pairs for an interval."""


@dataclass(frozen=True)
class Difference:
    """How much better a row is than another, in units of the metric; positive is better.

    mine, rival: means of the last epochs. pairs: of equal seeds. low, high: 95 %, Student's t; None with fewer than three pairs.
    A row with a diverged training is worse than any other.
    """

    name: str
    mine: float
    rival: float
    mean: float
    pairs: int
    low: float | None = None
    high: float | None = None

    def is_above(self, margin: float = 0.0) -> bool:
        """Whether the whole interval is above -margin."""
        return self.low is not None and self.low > -margin

    def is_below(self, margin: float = 0.0) -> bool:
        """Whether the whole interval is below -margin."""
        return self.high is not None and self.high < -margin


def difference(mine: Sequence[Record], rival: Sequence[Record], name: str) -> Difference | None:
    """Of the seeds that both have; runs of one seed in several columns count as one, by their mean. None if there are none."""
    ours, theirs = _by_seed(mine), _by_seed(rival)
    pairs = []
    for seed in ours.keys() & theirs.keys():
        columns = sorted(ours[seed].keys() & theirs[seed].keys())
        if columns:
            pairs.append([fmean(row[seed][column] for column in columns) for row in (ours, theirs)])
    if not pairs:
        return None
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    if not all(map(math.isfinite, first)):
        return Difference(name, math.nan, fmean(second), -math.inf, len(pairs), -math.inf, -math.inf)
    sign = -1 if mine[0].data["metric"]["better"] == "lower" else 1
    found = [sign * (a - b) for a, b in pairs]
    return Difference(name, fmean(first), fmean(second), fmean(found), len(pairs), *interval(found))


def _by_seed(runs: Sequence[Record]) -> dict[int, dict[str, float]]:
    """Results of the last epochs by seed and column."""
    found: dict[int, dict[str, float]] = {}
    for run in runs:
        value = run.result["last"] if run.status != DIVERGED else None
        found.setdefault(run.spec["seed"], {})[run.data["labels"]["column"]] = (
            math.nan if value is None else float(value)
        )
    return found


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Student's 95 % interval of a mean.

    >>> [round(end, 2) for end in interval([1.0, 2.0, 3.0])]
    [-0.48, 4.48]
    >>> interval([1.0, 2.0])
    (None, None)
    """
    if len(values) < FEWEST or not all(map(math.isfinite, values)):
        return None, None
    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


def by_validation(folder: str, column: str, names: Sequence[str]) -> list[str]:
    """These rows, the best first, by their mean results on validation data, so that test data choose nothing.

    Rows with fewer runs than others, or a diverged one, are left out.
    """
    there = {name: results.ended(row) for name, row in results.rows(folder, column).items() if name in names}
    most = max(map(len, there.values()), default=0)
    whole = {name: runs for name, runs in there.items() if len(runs) == most and not _astray(runs)}
    means = {name: fmean(float(run.result["val_metric"]) for run in runs) for name, runs in whole.items()}
    lower = any(runs[0].data["metric"]["better"] == "lower" for runs in whole.values())
    return sorted(means, key=lambda name: means[name] if lower else -means[name])


def _astray(runs: Sequence[Record]) -> bool:
    return any(run.status == DIVERGED or run.result.get("val_metric") is None for run in runs)
