"""Which fork ends better, foretold by ridge regression and judged on families of trainings that it was not fitted to.

    gap_f = log((e_f + near) / (e_1 + near))        e_f: the error of the fork by f; near as in the study of the law
    gap(s) = a s^2 + b s                            between forks, with s = log2 f, through those by 1/2, 1 and 2
    s* = argmin gap(s)                              as foretold: over -1, 0 and 1 (coarse), or all in between (fine)

Or s* itself is fitted to that of each row, with the weight of what it costs to miss it, about a: `direct`.

What a policy costs is the mean of gap(s*) that was found, each family counting the same: below 0 it is better than to go on.
The ridge is in the dual, with a linear kernel or a smooth one. Its strength, and which sensor where there is only one, are chosen
by leaving out families once more. What is fitted are gaps of at most `MOST`, so that a few trainings that blow up do not decide.
"""

import gzip
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.results import RESULTS
from lab.studies.forks.fill import FACTORS, MARKS, NEARLY, NEARLY_AT
from lab.studies.law import fit as law

Row = dict[str, Any]
Array = np.ndarray[Any, np.dtype[Any]]

FACTS: dict[str, Callable[[Row], float]] = {
    **law.FACTS,
    "momentum without Adam": lambda row: float(row["optimizer"] == "momentum"),
    "norms": lambda row: float(row["depth"] == 1 < row["matrices"]),
    "clipped": lambda row: float(row["clip"] is not None),
}
"""What is known before the first step: that of the law and more, or sensors would look good where they only tell facts again."""

FOLDER = RESULTS / "forks"
RIDGES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 30.0)
FOLDS = 5
DRAWS = 2000
MOST = 0.2
"""Of a gap that is fitted; what is judged goes to the law's `CAP`."""

FLAT = 0.005
"""A row whose forks differ by less wants nothing in particular."""

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
    near = law.NEAR if best < 1 else 0.0
    if not math.isfinite(error) or not math.isfinite(other):
        return law.CAP * (math.isfinite(other) - math.isfinite(error))
    return min(law.CAP, max(-law.CAP, math.log((error + near) / (other + near))))


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
        self.fitted = self.gaps.clip(-MOST, MOST)
        a, b = parabola(self.fitted)
        self.worth = np.maximum(np.maximum(a, np.abs(b) / 2), FLAT)
        usual, wanted = max(FLAT, float(self.weight @ a)), best(self.fitted, True)
        self.direct = usual * np.column_stack([1 + 2 * wanted, 1 - 2 * wanted])
        self.sensors = list(self.rows[0]["marks"][str(share)]["sensors"])
        self.share, all_names = share, [*FACTS, *self.sensors]
        columns = [known(row, row["marks"][str(share)]["sensors"], all_names) for row in self.rows]
        self.columns = dict(zip(all_names, np.array(columns).T, strict=True))

    def wanted(self, direct: bool) -> tuple[Array, Array]:
        """What is fitted, (rows, factors), and the weights of the rows: gaps, or those that have s* and the same a everywhere."""
        return (self.direct, self.weight * self.worth) if direct else (self.fitted, self.weight)

    def known(self, names: Sequence[str]) -> Array:
        """(rows, names): facts and sensors."""
        return np.column_stack([self.columns[name] for name in names]) if names else np.zeros((len(self.rows), 0))

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

    names: of what is known. mean, spread: theirs. points, duals: of the kernel. usual: the gaps without knowing anything.
    """

    names: list[str]
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


def ridge_fit(table: Table, names: list[str], rows: Array, ridge: float, form: "Form") -> Foretold:
    """min sum_i weight_i |gaps_i - f(x_i)|^2 + ridge |f|^2, with weights that add up to 1."""
    found, weight = (one[rows] for one in table.wanted(form.direct))
    x, weight = table.known(names)[rows], weight / weight.sum()
    mean, usual = weight @ x, weight @ found
    spread = np.sqrt(weight @ (x - mean) ** 2) + 1e-9
    points = np.clip((x - mean) / spread, -FAR, FAR)
    system = kernel(points, points, form.smooth) + np.diag(ridge / weight)
    return Foretold(names, form.smooth, mean, spread, points, np.linalg.solve(system, found - usual), usual)


def kernel(a: Array, b: Array, smooth: bool) -> Array:
    """(rows of a, rows of b): about 1 for a row with itself."""
    number = max(1, a.shape[1])
    if not smooth:
        return np.asarray(a @ b.T / number)
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    return np.asarray(np.exp(-squares / (2 * number)))


def chosen(table: Table, form: "Form", rows: Array) -> Foretold:
    """Fitted to some rows, with what foretells families best that are left out among them."""
    tries = [(names, ridge) for names in form.candidates for ridge in (RIDGES if names else RIDGES[:1])]
    costs, (found, weight) = np.zeros(len(tries)), table.wanted(form.direct)
    for fold in range(FOLDS):
        out, left = (rows[(table.family[rows] % FOLDS == fold) == one] for one in (True, False))
        for place, (names, ridge) in enumerate(tries if len(tries) > 1 and len(out) and len(left) else ()):
            guess = ridge_fit(table, names, left, ridge, form)(table.known(names)[out])
            costs[place] += weight[out] @ ((guess - found[out]) ** 2).sum(1)
    names, ridge = tries[int(costs.argmin())]
    return ridge_fit(table, names, rows, ridge, form)


def foretold(table: Table, form: "Form") -> Array:
    """(rows, factors), each family by what was fitted without it."""
    found = np.empty_like(table.gaps)
    for place in range(len(table.names)):
        out = table.family == place
        model = chosen(table, form, np.flatnonzero(~out))
        found[out] = model(table.known(model.names)[out])
    return found


def parabola(gaps: Array) -> tuple[Array, Array]:
    """a and b, from gaps at s = -1 and 1."""
    half, twice = gaps[:, 0], gaps[:, 1]
    return (half + twice) / 2, (twice - half) / 2


def best(gaps: Array, fine: bool) -> Array:
    """(rows,): s*.

    >>> gaps = np.array([[0.1, 0.1], [0.3, 0.1], [-0.1, 0.2], [0.1, -0.2]])
    >>> best(gaps, True).round(2).tolist(), best(gaps, False).tolist()
    ([0.0, 0.25, -1.0, 1.0], [0.0, 0.0, -1.0, 1.0])
    """
    a, b = parabola(gaps)
    ends = np.where(gaps.min(1) < 0, np.where(gaps[:, 0] < gaps[:, 1], -1.0, 1.0), 0.0)
    return np.clip(np.where(a > 1e-9, -b / np.maximum(2 * a, 1e-9), ends), -1, 1) + 0.0 if fine else ends


def cost(table: Table, s: Array) -> Array:
    """(rows,): the gaps that were found, or lie between those that were found."""
    a, b = parabola(table.gaps)
    return np.asarray(a * s**2 + b * s)


@dataclass(frozen=True)
class Form:
    """What a policy may know: the best of some sets of facts and sensors; whether its kernel is smooth, and s* is fitted."""

    candidates: list[list[str]]
    smooth: bool = False
    direct: bool = False


def forms(table: Table) -> dict[str, Form]:
    """By name."""
    facts = list(FACTS)
    both, each = [*facts, *table.sensors], [[name] for name in table.sensors]
    return {
        "nothing": Form([[]]),
        "facts": Form([facts]),
        "sensors": Form([table.sensors]),
        "one sensor": Form(each),
        "facts and sensors": Form([both]),
        "facts, smooth": Form([facts], True),
        "facts and sensors, smooth": Form([both], True),
        "nothing, direct": Form([[]], direct=True),
        "facts, direct": Form([facts], direct=True),
        "one sensor, direct": Form(each, direct=True),
        "facts and sensors, direct": Form([both], direct=True),
        "facts and sensors, smooth, direct": Form([both], True, True),
    }


BEYOND = {
    "sensors": "nothing",
    "one sensor": "nothing",
    "facts and sensors": "facts",
    "facts and sensors, smooth": "facts, smooth",
    "facts, direct": "nothing, direct",
    "one sensor, direct": "nothing, direct",
    "facts and sensors, direct": "facts, direct",
    "facts and sensors, smooth, direct": "facts, direct",
}
"""What the sensors of a form are compared with."""


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
    usual: dict[bool, float] = {}
    costs: dict[str, dict[str, Array]] = {}
    for name, form in forms(table).items():
        guess, (wanted, weight) = foretold(table, form), table.wanted(form.direct)
        left = float(weight @ ((guess - wanted) ** 2).sum(1))
        usual.setdefault(form.direct, left)
        choice = {"coarse": best(guess, False), "fine": best(guess, True)}
        costs[name] = {kind: cost(table, s) for kind, s in choice.items()}
        other = costs[BEYOND.get(name, "nothing")]
        found["forms"][name] = {"explained": 1 - left / usual[form.direct]} | {
            kind: {
                "gap": table.told(costs[name][kind]),
                "intervenes": float(table.weight @ (s != 0)),
                "mean size of s": float(table.weight @ np.abs(s)),
                "beyond": table.told(costs[name][kind] - other[kind]),
            }
            for kind, s in choice.items()
        }
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
