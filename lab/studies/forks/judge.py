"""What policies gained on fresh trainings, and what a ratio for each matrix does."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lab.studies.forks.fit import BEYOND, Array, Row, gap, told
from lab.studies.forks.layers import SCALES
from lab.studies.forks.policy import FIRST


def by_family(rows: Sequence[Row], value: Callable[[Row], float]) -> Array:
    """(families,) means."""
    names = sorted({row["family"] for row in rows})
    return np.array([np.mean([value(row) for row in rows if row["family"] == name]) for name in names])


def policies(rows: Sequence[Row]) -> dict[str, Any]:
    """Mean gaps to not intervening, to the best constant factor, and to the facts alone, with intervals that draw families."""

    def against(name: str, other: str) -> list[float]:
        def value(row: Row) -> float:
            ends = {key: found["end"][0] for key, found in row["policies"].items()}
            return gap(ends[name], ends[other], min(ends.values()))

        return told(by_family(rows, value))

    names = list(rows[0]["policies"])
    constant = min(("0.5", "1.0", "2.0"), key=lambda name: against(name, "1.0")[0])
    found: dict[str, Any] = {"rows": len(rows), "best constant": constant, "first": FIRST, "policies": {}}
    for name in names:
        scales = [row["policies"][name]["scales"][-1] for row in rows]
        found["policies"][name] = {
            "to not intervening": against(name, "1.0"),
            "to the best constant": against(name, constant),
            "intervenes": float(np.mean([scale != 1 for scale in scales])),
            "mean log2 scale": float(np.mean(np.log2(scales))),
        }
    for name in names:
        form, _, kind = name.partition(" | ")
        if (other := f"{BEYOND.get(form)} | {kind}") in names:
            found["policies"][name]["beyond facts"] = against(name, other)
    return found


def layers(rows: Sequence[Row]) -> dict[str, Any]:
    """Mean gaps of one ratio for each matrix to one for all: at the same r, and each at the best of the three."""

    def end(row: Row, kind: str, scale: float | None) -> float:
        ends = row["ends"][kind]
        return float(min(one[0] for one in ends.values()) if scale is None else ends[str(scale)][0])

    def values(rows: Sequence[Row], kind: str, scale: float | None, other: str, other_scale: float | None) -> Array:
        def value(row: Row) -> float:
            best = min(end(row, one, None) for one in ("all", "each"))
            return gap(end(row, kind, scale), end(row, other, other_scale), best)

        return by_family(rows, value)

    def against(kind: str, scale: float | None, other: str, other_scale: float | None) -> list[float]:
        return told(values(rows, kind, scale, other, other_scale))

    same, kinds = values(rows, "each", 1.0, "all", 1.0), sorted({row["optimizer"] for row in rows})
    return {
        "rows": len(rows),
        "families": len({row["family"] for row in rows}),
        "each to all, same r": {str(scale): against("each", scale, "all", scale) for scale in SCALES},
        "each to all at r": {str(scale): against("each", scale, "all", 1.0) for scale in SCALES},
        "all to all at r": {str(scale): against("all", scale, "all", 1.0) for scale in SCALES},
        "each to all at r, by optimizer": {
            kind: told(values([row for row in rows if row["optimizer"] == kind], "each", 1.0, "all", 1.0))
            for kind in kinds
        },
        "each to all at r, without the family that gains most": told(np.sort(same)[1:]) if len(same) > 1 else None,
        "each to all, best of three": against("each", None, "all", None),
    }
