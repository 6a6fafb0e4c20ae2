"""Which fork ends better, foretold by ridge regression and judged on families of trainings that it was not fitted to.

    gap_f = log((e_f + near) / (e_1 + near))        e_f: the error of the fork by f; near as in the study of the law
    f* = argmin over f in (1/2, 1, 2) of the gap that is foretold, which is 0 for 1

What a policy costs is the mean of gap_f* that was found, each family counting the same: below 0 it is better than to go on.
The ridge is in the dual, with a linear kernel or a smooth one; its strength is chosen by leaving out families once more.
"""

import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.results import RESULTS
from lab.studies.forks.fill import FACTORS, MARKS, NEARLY, NEARLY_AT
from lab.studies.law.fit import CAP, FACTS, NEAR

Row = dict[str, Any]
Array = np.ndarray[Any, np.dtype[Any]]

FOLDER = RESULTS / "forks"
RIDGES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 30.0)
FOLDS = 5
DRAWS = 2000
FAR = 4.0
"""Deviations from the mean beyond which a number counts no more."""


def read(path: Path) -> list[Row]:
    """The rows that could be trained and forked."""
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    return sorted((row for row in rows if "failed" not in row), key=lambda row: int(row["number"]))


def gap(error: float, other: float, best: float) -> float:
    """Of the first error over the other, at most `CAP` in size.

    >>> gap(0.1, 0.1, 0.1), gap(math.inf, 0.1, 0.1), gap(math.inf, math.inf, 0.1), round(gap(4.0, 2.0, 2.0), 2)
    (0.0, 1.0, 0.0, 0.69)
    """
    near = NEAR if best < 1 else 0.0
    if not math.isfinite(error) or not math.isfinite(other):
        return CAP * (math.isfinite(other) - math.isfinite(error))
    return min(CAP, max(-CAP, math.log((error + near) / (other + near))))


def gaps(row: Row, share: float) -> dict[float, float]:
    """Those of the forks at a mark."""
    ends = row["marks"][str(share)]["ends"]
    best = min([row["end"][0], *(end[0] for mark in row["marks"].values() for end in mark["ends"].values())])
    return {float(factor): gap(end[0], row["end"][0], best) for factor, end in ends.items()}


class Table:
    """What is known at a mark, and what came of its forks.

    Args:
        rows: those of `read`.
        share: the mark.
    """

    def __init__(self, rows: Sequence[Row], share: float) -> None:
        self.rows = [row for row in rows if str(share) in row["marks"]]
        self.names = sorted({row["family"] for row in self.rows})
        self.family = np.array([self.names.index(row["family"]) for row in self.rows])
        self.weight = 1 / np.bincount(self.family)[self.family] / len(self.names)
        found = [gaps(row, share) for row in self.rows]
        self.gaps = np.array([[one[factor] for factor in FACTORS] for one in found])
        self.sensors = list(self.rows[0]["marks"][str(share)]["sensors"])
        self.share = share

    def known(self, names: Sequence[str]) -> Array:
        """(rows, names): facts and sensors."""
        return np.array([known(row, row["marks"][str(self.share)]["sensors"], names) for row in self.rows]).reshape(
            len(self.rows), len(names)
        )

    def told(self, values: Array) -> list[float]:
        """The mean over families of a number for each row, with an interval that draws families."""
        means = np.bincount(self.family, values) / np.bincount(self.family)
        return told(means)


def told(means: Array) -> list[float]:
    """A mean, and an interval of 95 % that draws what it is of."""
    drawn = np.random.default_rng(0).integers(len(means), size=(DRAWS, len(means)))
    return [float(means.mean()), *np.percentile(means[drawn].mean(1), [2.5, 97.5]).tolist()]


def known(row: Row, sensors: dict[str, float], names: Sequence[str]) -> list[float]:
    """Facts of a row, and sensors, by their names."""
    return [float(sensors[name]) if name in sensors else FACTS[name](row) for name in names]


@dataclass(frozen=True)
class Foretold:
    """Gaps of forks, as a function of what is known.

    mean, spread: of what is known. points, duals: of the kernel. usual: the gaps without knowing anything.
    """

    smooth: bool
    mean: Array
    spread: Array
    points: Array
    duals: Array
    usual: Array

    def __call__(self, x: Array) -> Array:
        """(rows, factors)."""
        z = np.clip((x - self.mean) / self.spread, -FAR, FAR)
        return np.asarray(self.usual + kernel(z, self.points, self.smooth) @ self.duals)

    @classmethod
    def fitted(cls, x: Array, gaps: Array, weight: Array, ridge: float, smooth: bool) -> "Foretold":
        """min sum_i weight_i |gaps_i - f(x_i)|^2 + ridge |f|^2, with weights that add up to 1."""
        weight = weight / weight.sum()
        mean = weight @ x
        spread = np.sqrt(weight @ (x - mean) ** 2) + 1e-9
        points, usual = np.clip((x - mean) / spread, -FAR, FAR), weight @ gaps
        system = kernel(points, points, smooth) + np.diag(ridge / weight)
        return cls(smooth, mean, spread, points, np.linalg.solve(system, gaps - usual), usual)


def kernel(a: Array, b: Array, smooth: bool) -> Array:
    """(rows of a, rows of b): about 1 for a row with itself."""
    number = max(1, a.shape[1])
    if not smooth:
        return np.asarray(a @ b.T / number)
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    return np.asarray(np.exp(-squares / (2 * number)))


def chosen(table: Table, x: Array, rows: Array, smooth: bool) -> Foretold:
    """Fitted to some rows, with the ridge that foretells families best that were left out among them."""
    if not x.shape[1]:
        return Foretold.fitted(x[rows], table.gaps[rows], table.weight[rows], 1.0, False)
    costs = np.zeros(len(RIDGES))
    for fold in range(FOLDS):
        out = rows[table.family[rows] % FOLDS == fold]
        left = rows[table.family[rows] % FOLDS != fold]
        for place, ridge in enumerate(RIDGES if len(out) and len(left) else ()):
            f = Foretold.fitted(x[left], table.gaps[left], table.weight[left], ridge, smooth)
            costs[place] += table.weight[out] @ ((f(x[out]) - table.gaps[out]) ** 2).sum(1)
    ridge = RIDGES[int(costs.argmin())]
    return Foretold.fitted(x[rows], table.gaps[rows], table.weight[rows], ridge, smooth)


def foretold(table: Table, x: Array, smooth: bool) -> Array:
    """(rows, factors), each family by what was fitted without it."""
    found = np.empty_like(table.gaps)
    for place in range(len(table.names)):
        out = table.family == place
        found[out] = chosen(table, x, np.flatnonzero(~out), smooth)(x[out])
    return found


def best_factor(gaps: Array) -> Array:
    """(rows,): which column is lowest; -1 to go on as planned, whose gap is 0."""
    place = gaps.argmin(1)
    return np.where(gaps.min(1) < 0, place, -1)


def cost(table: Table, choice: Array) -> Array:
    """(rows,): the gaps that were found under what was chosen."""
    return np.where(choice < 0, 0.0, table.gaps[np.arange(len(choice)), choice])


def forms(table: Table) -> dict[str, tuple[list[str], bool]]:
    """Name: what is known, and whether the kernel is smooth."""
    facts = list(FACTS)
    return {
        "nothing": ([], False),
        "facts": (facts, False),
        "sensors": (table.sensors, False),
        "facts and sensors": ([*facts, *table.sensors], False),
        "facts, smooth": (facts, True),
        "facts and sensors, smooth": ([*facts, *table.sensors], True),
    }


def judged(table: Table) -> dict[str, Any]:
    """Everything about a mark."""
    found: dict[str, Any] = {
        "rows": len(table.rows),
        "forks": {str(factor): table.told(table.gaps[:, place]) for place, factor in enumerate(FACTORS)},
        "better": {
            str(factor): float(table.weight @ (table.gaps[:, place] < 0)) for place, factor in enumerate(FACTORS)
        },
        "hindsight": table.told(np.minimum(table.gaps.min(1), 0)),
        "forms": {},
    }
    spread = None
    costs: dict[str, Array] = {}
    for name, (names, smooth) in forms(table).items():
        guess = foretold(table, table.known(names), smooth)
        square = float(table.weight @ ((guess - table.gaps) ** 2).sum(1))
        spread = square if spread is None else spread
        choice = best_factor(guess)
        costs[name] = cost(table, choice)
        found["forms"][name] = {
            "gap": table.told(costs[name]),
            "explained": 1 - square / spread,
            "intervenes": float(table.weight @ (choice >= 0)),
            "more than nothing": table.told(costs[name] - costs["nothing"]),
        }
    for name, facts in (("facts and sensors", "facts"), ("facts and sensors, smooth", "facts, smooth")):
        found["forms"][name]["more than facts"] = table.told(costs[name] - costs[facts])
    return found | {"sensors": alone(table)}


def alone(table: Table) -> dict[str, list[float]]:
    """Each sensor's correlation with how much better twice is than half, both without what facts explain; > 0: twice is better.

    The interval draws families.
    """
    facts = np.column_stack([np.ones(len(table.rows)), table.known(list(FACTS))])
    root = np.sqrt(table.weight)[:, None]
    wants = table.gaps[:, FACTORS.index(0.5)] - table.gaps[:, FACTORS.index(2.0)]
    values = np.column_stack([table.known(table.sensors), wants])
    values = np.clip((values - values.mean(0)) / (values.std(0) + 1e-9), -FAR, FAR)
    left = values - facts @ np.linalg.lstsq(root * facts, root * values, rcond=None)[0]
    left = left * root
    sums = np.stack([left[table.family == place].T @ left[table.family == place] for place in range(len(table.names))])
    drawn = np.random.default_rng(0).integers(len(sums), size=(DRAWS, len(sums)))

    def correlations(square: Array) -> Array:
        own = np.sqrt(np.diagonal(square, axis1=-2, axis2=-1)) + 1e-12
        return np.asarray(square[..., -1, :-1] / own[..., :-1] / own[..., -1:])

    now, spread = correlations(sums.sum(0)), correlations(np.stack([sums[one].sum(0) for one in drawn]))
    low, high = np.percentile(spread, [2.5, 97.5], axis=0)
    return {name: [float(now[i]), float(low[i]), float(high[i])] for i, name in enumerate(table.sensors)}


def chance(rows: Sequence[Row]) -> dict[str, float]:
    """What a factor of 1.01 does, where it was tried."""
    found = np.array([gaps(row, NEARLY_AT)[NEARLY] for row in rows if str(NEARLY_AT) in row["marks"]])
    return {
        "mean": float(found.mean()),
        "mean size": float(np.abs(found).mean()),
        "deviation": float(found.std()),
        "hindsight": float(np.minimum(found, 0).mean()),
    }


def fits(rows: Sequence[Row]) -> dict[str, Any]:
    """Everything that the page says of the forks."""
    tables = {share: Table(rows, share) for share in MARKS}
    return {
        "rows": len(rows),
        "families": len({row["family"] for row in rows}),
        "hours": sum(row["seconds"] for row in rows) / 3600,
        "by chance": chance(rows),
        "marks": {str(share): judged(table) for share, table in tables.items()},
    }
