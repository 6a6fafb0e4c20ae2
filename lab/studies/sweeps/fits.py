"""Rules for the size of a step, fitted to cells and judged on families that they were not fitted to.

Everything is in log r. A fit is least squares over the cells whose best r lies inside of what was tried. A regret is the loss at a
rule's r above the best loss of the cell. Intervals are of 95 %, by drawing whole families (a cluster bootstrap).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lab.studies.sweeps.cells import Cell

Array = NDArray[np.float64]
FACTS = ("steps", "size", "batch")
DRAWS = 1000


class Rule(Protocol):
    """Something that gives an r for a cell once it has seen others."""

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    def fitted(self, cells: Sequence[Cell]) -> Callable[[Cell], float]:
        """r of a cell, learned from these."""
        ...


@dataclass(frozen=True)
class Fixed:
    """A rule that learns nothing: the default's law, or the usual LR."""

    name: str
    at: Callable[[Cell], float]

    def fitted(self, cells: Sequence[Cell]) -> Callable[[Cell], float]:
        """See `Rule`."""
        return self.at


@dataclass(frozen=True)
class Power:
    """r = constant of the group * base * product of fact^power. Without facts: one constant for a group."""

    name: str
    facts: tuple[str, ...] = ()
    base: Callable[[Cell], float] = lambda cell: 1.0
    weight: Callable[[Cell], float] = lambda cell: 1.0

    def fitted(self, cells: Sequence[Cell]) -> "Fitted":
        """See `Rule`."""
        known = inside(cells)
        if not known:
            raise ValueError(f"cells must have one with a best size inside of what was tried, got {len(cells)} without")
        groups = sorted({cell.group for cell in known})
        which = np.array([[cell.group == group for group in groups] for cell in known], dtype=float)
        x = np.hstack([which, _logs(known, self.facts)])
        y = np.array([math.log(cell.best / self.base(cell)) for cell in known])
        root = np.sqrt([self.weight(cell) for cell in known])
        theta, _, rank, _ = np.linalg.lstsq(x * root[:, None], y * root, rcond=None)
        constants = dict(zip(groups, theta[: len(groups)].tolist(), strict=True))
        is_known = bool(rank == x.shape[1])
        return Fitted(self, constants, theta[len(groups) :], y - x @ theta, is_known)


@dataclass(frozen=True)
class Fitted:
    """A `Power` with its numbers. is_known: whether the cells tell them all apart."""

    form: Power
    constants: dict[str, float]
    powers: Array
    residuals: Array
    is_known: bool

    def __call__(self, cell: Cell) -> float:
        """r of a cell. A group that was not seen has the mean constant."""
        constant = self.constants.get(cell.group, float(np.mean(list(self.constants.values()))))
        return math.exp(constant) * self.shape(cell) * self.form.base(cell)

    def shape(self, cell: Cell) -> float:
        """Product of fact^power."""
        return math.exp((_logs([cell], self.form.facts) @ self.powers).item())


def inside(cells: Iterable[Cell]) -> list[Cell]:
    """Those whose best r lies inside of what was tried."""
    return [cell for cell in cells if math.isfinite(cell.best)]


def regrouped(cell: Cell, group: str) -> Cell:
    """The cell in another group."""
    return replace(cell, group=group)


def _logs(cells: Sequence[Cell], facts: Sequence[str]) -> Array:
    return np.array([[math.log(getattr(cell, fact)) for fact in facts] for cell in cells]).reshape(
        len(cells), len(facts)
    )


def families(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Cells by family."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.family, []).append(cell)
    return found


def draws(cells: Sequence[Cell], number: int = DRAWS) -> Iterable[list[Cell]]:
    """As many families as there are, drawn with replacement, so many times; always the same ones."""
    kinds = list(families(cells).values())
    random = np.random.default_rng(0)
    for _ in range(number):
        yield [cell for at in random.integers(len(kinds), size=len(kinds)) for cell in kinds[at]]


def interval(values: Iterable[float]) -> list[float]:
    """The middle 95 %."""
    return [float(value) for value in np.percentile(list(values), [2.5, 97.5])]


def exponents(cells: Sequence[Cell], facts: tuple[str, ...]) -> dict[str, Any]:
    """The powers that the data wants, each with its interval, and the deviation of what is left in log r."""
    form = Power("", facts)
    found = form.fitted(cells)
    again = [one.powers for one in (form.fitted(drawn) for drawn in draws(inside(cells))) if one.is_known]
    ends = np.percentile(again, [2.5, 97.5], axis=0).T if again else np.full((len(facts), 2), math.nan)
    free = len(found.residuals) - len(found.constants) - len(facts)
    return {
        "powers": {fact: [float(p), *map(float, e)] for fact, p, e in zip(facts, found.powers, ends, strict=True)},
        "constants": {group: math.exp(value) for group, value in found.constants.items()},
        "left": math.sqrt(float(found.residuals @ found.residuals) / max(1, free)),
        "cells": len(found.residuals),
    }


def held_out(rule: Rule, cells: Sequence[Cell], part: Callable[[Cell], Any] = lambda cell: cell.family) -> list[float]:
    """The r that a rule gives each cell after it has seen all cells of other parts."""
    learned = {key: rule.fitted([one for one in cells if part(one) != key]) for key in {part(one) for one in cells}}
    return [learned[part(one)](one) for one in cells]


def judged(rule: Rule, cells: Sequence[Cell]) -> dict[str, Any]:
    """The mean regret of a rule over cells, its interval, its worst tenth, and how often it leaves what was tried."""
    sizes = held_out(rule, cells)
    regrets = [cell.regret(r) for cell, r in zip(cells, sizes, strict=True)]
    low, high = interval(mean_by_family(cells, regrets))
    off = [math.log(r / cell.best) for cell, r in zip(cells, sizes, strict=True) if math.isfinite(cell.best)]
    return {
        "rule": rule.name,
        "regret": float(np.mean(regrets)),
        "low": low,
        "high": high,
        "worst tenth": float(np.quantile(regrets, 0.9)),
        "times best": math.exp(float(np.mean(off))),
        "left": float(np.std(off)),
        "outside": sum(not cell.tried(r) for cell, r in zip(cells, sizes, strict=True)),
        "cells": len(cells),
    }


def mean_by_family(cells: Sequence[Cell], values: Sequence[float]) -> list[float]:
    """The mean of one value a cell, in every draw of families."""
    at = {id(cell): value for cell, value in zip(cells, values, strict=True)}
    return [float(np.mean([at[id(cell)] for cell in drawn])) for drawn in draws(cells)]


def simplest(cells: Sequence[Cell], facts: Sequence[str] = FACTS) -> dict[str, Any]:
    """Of all powers of some facts the one with the fewest that is within one standard error of the best, by held-out regret.

    The standard error is that of the difference to the best, cell by cell.
    """
    forms = [some for number in range(len(facts) + 1) for some in combinations(facts, number)]
    regrets = {some: _regrets(Power("", some), cells) for some in forms}
    best = min(forms, key=lambda some: regrets[some].mean())
    lines = [_against(cells, some, regrets[some], regrets[best]) for some in forms]
    near = [line for line in lines if line["more"] <= line["error"]]
    chosen = min(near, key=lambda line: (len(line["facts"]), line["regret"]))
    return {"forms": lines, "best": list(best), "simplest": chosen["facts"]}


def _regrets(rule: Rule, cells: Sequence[Cell]) -> Array:
    return np.array([cell.regret(r) for cell, r in zip(cells, held_out(rule, cells), strict=True)])


def _against(cells: Sequence[Cell], facts: tuple[str, ...], regrets: Array, best: Array) -> dict[str, Any]:
    more = regrets - best
    error = float(np.std(mean_by_family(cells, more.tolist())))
    return {"facts": list(facts), "regret": float(regrets.mean()), "more": float(more.mean()), "error": error}


SMALL = 0.087
"""The relative size that suits small trainings best, if one has to serve all of them."""

LAW = Fixed("the law", lambda cell: cell.law)
BEFORE = Fixed("the law before", lambda cell: cell.before)
SMALL_SIZE = Fixed("that of small trainings", lambda cell: SMALL)
LAW_TIMES = Power("the law times a constant", (), lambda cell: cell.law)
ONE_SIZE = Power("one relative size")
USUAL = Fixed("usual LR", lambda cell: cell.usual)
