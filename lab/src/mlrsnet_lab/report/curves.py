"""Curves over seeds: mean, lowest and highest."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlrsnet_lab.report.runs import Points, Run
from mlrsnet_lab.report.tables import Row

MOST_POINTS = 500
"""More than a panel has pixels."""


@dataclass(frozen=True)
class Curve:
    """At each x the mean, lowest and highest over the seeds that reached it."""

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def drawn(row: Row) -> list[Run]:
    """The runs to draw: those that have ended, or all if none has."""
    return [run for run in row.runs if run.record.ended] or row.runs


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
