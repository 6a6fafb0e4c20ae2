"""One form for several sources: each keeps its constants, all share the powers.

Every source counts the same, however many cells it has. Powers are judged on a source that they were not fitted to, whose constants
come from its other families. Losses have different units, so a regret is divided by that of one constant in the same source.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from lab.studies.sweeps.cells import Cell
from lab.studies.sweeps.fits import FACTS, LAW_TIMES, ONE_SIZE, Array, Fitted, Power, Rule, draws, held_out, inside

Sources = dict[str, list[Cell]]
DRAWS = 400
LAWS = "the law's"


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
    """Every set of facts and the law's own powers on sources left out; the simplest within one standard error of the best."""
    constant = {name: regrets(ONE_SIZE, cells) for name, cells in sources.items()}
    kinds = [some for number in range(len(FACTS) + 1) for some in combinations(FACTS, number)]
    found = {" ".join(some): {name: regrets(learned(sources, name, some), sources[name]) for name in sources} for some in kinds}
    found[LAWS] = {name: regrets(LAW_TIMES, cells) for name, cells in sources.items()}
    shares = {key: {name: float(one[name].mean() / constant[name].mean()) for name in sources} for key, one in found.items()}
    best = min(set(found) - {LAWS}, key=lambda key: float(np.mean(list(shares[key].values()))))
    lines = [
        {"facts": key, "shares": shares[key], "mean": float(np.mean(list(shares[key].values()))), "error": error}
        for key, error in ((key, _error(sources, constant, found[key], found[best])) for key in found)
    ]
    least = next(line["mean"] for line in lines if line["facts"] == best)
    near = [line for line in lines if line["mean"] - least <= line["error"] and line["facts"] != LAWS]
    simplest = min(near, key=lambda line: (len(str(line["facts"]).split()), line["mean"]))["facts"]
    return {"forms": lines, "best": best, "simplest": simplest}


def learned(sources: Sources, left_out: str, facts: tuple[str, ...]) -> Rule:
    """A constant for each group of a source, times powers that all other sources want."""
    shape = fitted({name: cells for name, cells in sources.items() if name != left_out}, facts).shape
    return Power("", (), shape)


def regrets(rule: Rule, cells: Sequence[Cell]) -> Array:
    """Of each cell, by what other families say."""
    return np.array([cell.regret(r) for cell, r in zip(cells, held_out(rule, cells), strict=True)])


def _error(sources: Sources, constant: dict[str, Array], some: dict[str, Array], best: dict[str, Array]) -> float:
    """The standard error of the difference to the best form."""
    parts = []
    for name, cells in sources.items():
        more = dict(zip(map(id, cells), (some[name] - best[name]) / constant[name].mean(), strict=True))
        parts.append([np.mean([more[id(cell)] for cell in drawn]) for drawn in draws(cells, DRAWS)])
    return float(np.std(np.mean(parts, axis=0)))
