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
    """Of runs with equal seeds in the same column; None if there are none."""
    theirs = {_pair(run): run for run in rival}
    pairs = [(run, theirs[_pair(run)]) for run in mine if _pair(run) in theirs]
    return of_pairs(pairs, name) if pairs else None


def _pair(run: Record) -> tuple[str, int]:
    return run.data["labels"]["column"], run.spec["seed"]


def of_pairs(pairs: Sequence[tuple[Record, Record]], name: str) -> Difference:
    """Of any pairs of runs."""
    sign = -1 if pairs[0][0].data["metric"]["better"] == "lower" else 1
    mine, rival = ([_last(run) for run in row] for row in zip(*pairs, strict=True))
    found = [sign * (a - b) for a, b in zip(mine, rival, strict=True)]
    low, high = interval(found)
    return Difference(name, fmean(mine), fmean(rival), fmean(found), len(found), low, high)


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


def best_rival(folder: str, column: str, rivals: Sequence[str]) -> str | None:
    """The row with the best mean of the last epochs; rows with fewer runs than others, or a diverged one, are left out."""
    there = {name: results.ended(row) for name, row in results.rows(folder, column).items() if name in rivals}
    most = max(map(len, there.values()), default=0)
    whole = {name: runs for name, runs in there.items() if len(runs) == most and not _astray(runs)}
    means = {name: fmean(map(_last, runs)) for name, runs in whole.items()}
    if not means:
        return None
    lower = next(iter(whole.values()))[0].data["metric"]["better"] == "lower"
    return (min if lower else max)(means, key=lambda name: means[name])


def _astray(runs: Sequence[Record]) -> bool:
    return any(run.status == DIVERGED for run in runs)


def _last(run: Record) -> float:
    value = run.result["last"]
    return math.nan if value is None else float(value)
