"""One LR for all: of each kind of optimizer, the one whose decays are nearest to the best on the table's trainings.

    gap_i(lr) = log((e_i(lr) + near) / (b_i + near)),    at most 1

e: the error of a decay from lr, straight in log lr between those tried; b: the best of them; near as in `fit`. Each family counts
the same. Beyond the LRs that were tried, a factor e costs `fit.SLOPE`.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lab.studies.law.fit import CAP, SLOPE, Row, near_of

KINDS = {"adam": ("adam", "adamw"), "momentum": ("momentum",), "sgd": ("sgd",)}
"""A kind, and the optimizers of the table that are of it."""

STEPS = 16
"""LRs between 1 and 2 that are tried."""


def gaps(row: Row, lrs: np.ndarray) -> np.ndarray:
    """What each of these LRs costs on a row."""
    tried, errors = np.array(sorted((lr, math.inf if error is None else error) for lr, error, *_ in row["decays"])).T
    near, at = near_of(float(errors.min())), np.log(lrs)
    begin, end = np.log(tried[[0, -1]])
    with np.errstate(invalid="ignore"):  # at an LR that was tried, beside one that diverged
        between = np.interp(at, np.log(tried), errors)
    between = np.nan_to_num(between, nan=math.inf, posinf=math.inf)
    beyond = np.maximum(0, begin - at) + np.maximum(0, at - end)
    found: np.ndarray = np.minimum(CAP, np.log((between + near) / (errors.min() + near)) + SLOPE * beyond)
    return found


def by_family(rows: Sequence[Row], lrs: np.ndarray) -> np.ndarray:
    """(LRs,) means over families."""
    names = sorted({row["family"] for row in rows})
    return np.mean(
        [np.mean([gaps(row, lrs) for row in rows if row["family"] == name], axis=0) for name in names], axis=0
    )


def calibrated(rows: Sequence[Row]) -> dict[str, Any]:
    """The LR of each kind, its mean gap, and those of half and of twice as large a one."""
    found = {}
    for kind, optimizers in KINDS.items():
        those = [row for row in rows if row["optimizer"] in optimizers]
        if not those:
            continue
        tried = [lr for row in those for lr, *_ in row["decays"]]
        lrs = 2 ** (
            np.arange(math.floor(math.log2(min(tried)) * STEPS), math.ceil(math.log2(max(tried)) * STEPS) + 1) / STEPS
        )
        lr = float(f"{lrs[by_family(those, lrs).argmin()]:.2g}")
        gap, half, twice = by_family(those, np.array([lr, lr / 2, 2 * lr])).tolist()
        families = len({row["family"] for row in those})
        found[kind] = {"lr": lr, "gap": gap, "half": half, "twice": twice, "rows": len(those), "families": families}
    return found
