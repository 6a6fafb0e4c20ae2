"""One form for several sources: each keeps its constants, all share the powers.

Every source counts the same, however many cells it has. Powers are judged on a source that they were not fitted to, whose constants
come from its other families. Losses have different units, so a regret is divided by that of one constant in the same source.
"""

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from lab.studies.sweeps.cells import Cell
from lab.studies.sweeps.fits import FACTS, Array, Fitted, Power, Rule, draws, held_out, inside
from mlrsnet.default import USUAL_BATCH, USUAL_SIZE, USUAL_STEPS, Size

Sources = dict[str, list[Cell]]
DRAWS = 400
ALL, OTHERS = "all sources", "the other sources"
LAW = Size()
POWERS = {
    "the law": {"steps": LAW.steps, "size": LAW.parameters, "batch": LAW.batch},
    "the law before": {"steps": -0.1, "size": -0.19},
}
"""Of the default's law, which were chosen after all these sources had been seen, and of the law before, which was not."""

USUAL = {"steps": USUAL_STEPS, "size": USUAL_SIZE, "batch": USUAL_BATCH}


def fitted(sources: Sources, facts: tuple[str, ...]) -> Fitted:
    """The powers that all sources want together."""
    share = {id(cell): 1 / len(inside(cells)) for cells in sources.values() for cell in cells}
    everything = [cell for cells in sources.values() for cell in cells]
    return Power("", facts, weight=lambda cell: share[id(cell)]).fitted(everything)


def powers(sources: Sources, facts: tuple[str, ...]) -> dict[str, list[float]]:
    """They and their intervals; families are drawn within each source."""
    rows = zip(*(draws(inside(cells), DRAWS) for cells in sources.values()), strict=True)
    again = [fitted(dict(zip(sources, row, strict=True)), facts).powers for row in rows]
    ends = np.percentile(again, [2.5, 97.5], axis=0).T
    found = fitted(sources, facts).powers
    return {fact: [float(p), *map(float, two)] for fact, p, two in zip(facts, found, ends, strict=True)}


def forms(sources: Sources) -> dict[str, Any]:
    """Every set of facts, with the powers that all sources want, or that all others want; and those of `POWERS`.

    `simplest` has the fewest facts within one standard error of the best, with the powers of the others.
    """
    kinds = [some for number in range(len(FACTS) + 1) for some in combinations(FACTS, number)]
    all_of = {some: fitted(sources, some).shape for some in kinds}
    rules: dict[tuple[str, str], dict[str, Rule]] = {
        **{(" ".join(some), ALL): dict.fromkeys(sources, Power("", (), all_of[some])) for some in kinds},
        **{(" ".join(some), OTHERS): {name: learned(sources, name, some) for name in sources} for some in kinds},
        **{(name, "no source"): dict.fromkeys(sources, Power("", (), one)) for name, one in CANDIDATES.items()},
    }
    lost = {key: {name: regrets(rule[name], sources[name]) for name in sources} for key, rule in rules.items()}
    unit = {name: float(lost["", ALL][name].mean()) for name in sources}
    best = min((key for key in lost if key[1] == OTHERS), key=lambda key: _mean(lost[key], unit))
    lines = [_line(sources, key, found, lost[best], unit) for key, found in lost.items()]
    near = [one for one in lines if one["powers of"] == OTHERS and one["more"] <= one["error"]]
    simplest = min(near, key=lambda one: (len(one["facts"].split()), one["mean"]))["facts"]
    return {"forms": lines, "best": best[0], "simplest": simplest}


def form(powers: dict[str, float]) -> Callable[[Cell], float]:
    """r without its constant: 1 for the usual training.

    >>> from lab.studies.sweeps.cells import cell
    >>> form(POWERS["the law"])(cell([1.0], [1.0], steps=500.0, size=1e4, batch=32.0))
    1.0
    """
    return lambda cell: math.prod((getattr(cell, fact) / USUAL[fact]) ** power for fact, power in powers.items())


def constants(sources: Sources) -> list[dict[str, Any]]:
    """best / law of each source and of each group of known size: the mean, and the deviation of the logarithm."""
    groups: dict[str, list[Cell]] = {}
    for source, cell in ((name, cell) for name, cells in sources.items() for cell in inside(cells) if cell.knows_size):
        groups.setdefault(source, []).append(cell)
        groups.setdefault(cell.group, []).append(cell)
    return [
        {
            "group": group,
            "is source": group in sources,
            "cells": len(cells),
            "the law": _spread(cells, lambda cell: cell.law),
            "the law before": _spread(cells, lambda cell: cell.before),
        }
        for group, cells in groups.items()
    ]


def _spread(cells: Sequence[Cell], base: Callable[[Cell], float]) -> list[float]:
    logs = [math.log(cell.best / base(cell)) for cell in cells]
    return [math.exp(float(np.mean(logs))), float(np.std(logs))]


CANDIDATES = {name: form(powers) for name, powers in POWERS.items()}


def learned(sources: Sources, left_out: str, facts: tuple[str, ...]) -> Rule:
    """A constant for each group of a source, times powers that all other sources want."""
    return Power("", (), fitted({name: cells for name, cells in sources.items() if name != left_out}, facts).shape)


def regrets(rule: Rule, cells: Sequence[Cell]) -> Array:
    """Of each cell, by what other families say."""
    return np.array([cell.regret(r) for cell, r in zip(cells, held_out(rule, cells), strict=True)])


def _mean(lost: dict[str, Array], unit: dict[str, float]) -> float:
    return float(np.mean([found.mean() / unit[name] for name, found in lost.items()]))


def _line(
    sources: Sources, key: tuple[str, str], lost: dict[str, Array], best: dict[str, Array], unit: dict[str, float]
) -> dict[str, Any]:
    """A form's regret in each source and in the mean; how much more than the best one's, with the standard error of that."""
    parts = []
    for name, cells in sources.items():
        more = dict(zip(map(id, cells), (lost[name] - best[name]) / unit[name], strict=True))
        parts.append([np.mean([more[id(cell)] for cell in drawn]) for drawn in draws(cells, DRAWS)])
    return {
        "facts": key[0],
        "powers of": key[1],
        "shares": {name: float(found.mean()) / unit[name] for name, found in lost.items()},
        "mean": _mean(lost, unit),
        "more": _mean(lost, unit) - _mean(best, unit),
        "error": float(np.std(np.mean(parts, axis=0))),
    }
