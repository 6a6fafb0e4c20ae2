"""Fine-tunings that fail: how their share grows with the LR, and which LR keeps it below one in a hundred.

The share is a monotone fit (isotonic regression) of fail or not on the LR. Intervals draw settings, which both models share.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from lab.studies.sweeps.deberta import LENGTH, PARTS, USUAL_LR, Tuned
from lab.studies.sweeps.fits import Array, interval
from lab.studies.sweeps.steps import distance

ALLOWED, DRAWS, NEAR, NEARBY = 0.01, 300, 1.3, 0.03
"""NEAR: trainings with LRs within this factor say how good an LR is. NEARBY: a distance, chosen after the results were seen."""

Runs = Sequence[Tuned]


def by_lr(runs: Runs) -> list[dict[str, Any]]:
    """Twelve equal parts of the logarithm of the LR: how many fail, and the median accuracy."""
    parts = [[run for run in runs if low <= run.lr < high] for low, high in pairwise(PARTS)]
    ends = pairwise(PARTS.tolist())
    return [{"from": low, "to": high, **counted(part)} for (low, high), part in zip(ends, parts, strict=True)]


def counted(runs: Runs) -> dict[str, Any]:
    """How many, how many end below 0.5, 0.6 and 0.7, and the median accuracy."""
    failed = {f"failed {below}": sum(run.failed(below) for run in runs) for below in (0.5, 0.6, 0.7)}
    return {"trainings": len(runs), **failed, "accuracy": median(run.accuracy for run in runs) if runs else math.nan}


def share(sizes: Array, failed: Sequence[bool]) -> Callable[[Array], Array]:
    """The share that fails at some sizes: never falling, a straight line in the logarithm between trainings.

    >>> share(np.array([1.0, 2.0, 3.0]), [False, True, False])(np.array([1.0, 2.0, 9.0])).tolist()
    [0.0, 0.5, 0.5]
    """
    fit = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(np.log(sizes), failed)
    return lambda at: fit.predict(np.log(at))


def bound(sizes: Array, failed: Sequence[bool]) -> float:
    """The largest of some sizes at which at most one in a hundred fails."""
    return float(sizes[share(sizes, failed)(sizes) <= ALLOWED].max())


def accuracy(runs: Runs, lr: float) -> float:
    """The median accuracy of trainings with about this LR, failed ones included."""
    return median(run.accuracy for run in runs if lr / NEAR <= run.lr <= lr * NEAR)


def rules(runs: Runs, others: Runs) -> dict[str, Callable[[Tuned], float]]:
    """LRs that one might give a fine-tuning. What is fitted, is fitted to the other model's."""
    kept = bound(lrs(others), failures(others))
    return {
        "the law, as if new": lambda run: run.law * LENGTH,
        "a tenth of it": lambda run: 0.1 * run.law * LENGTH,
        "the law": lambda run: run.kept * LENGTH,
        "the law before": lambda run: run.before * LENGTH,
        "usual LR": lambda run: USUAL_LR,
        "the other model's bound": lambda run: kept,
        f"a distance of {NEARBY:g}": lambda run: NEARBY / distance(1.0, run.steps) * LENGTH,
    }


def judged(runs: Runs, others: Runs) -> list[dict[str, Any]]:
    """Of each rule: its LR, the share that fails at it, and how much accuracy the median training loses against the best LR."""
    at, best = share(lrs(runs), failures(runs)), max(accuracy(runs, lr) for lr in np.geomspace(2e-6, 2e-4, 60))
    found = []
    for name, rule in rules(runs, others).items():
        given = np.array([rule(run) for run in runs])
        lost = best - median(accuracy(runs, lr) for lr in given)
        found.append({"rule": name, "lr": float(np.median(given)), "fails": float(at(given).mean()), "lost": lost})
    return found


def bounds(runs: Runs) -> dict[str, list[float]]:
    """The bound with its interval: as an LR, and as a distance (`steps.distance`)."""
    again = drawn_settings(runs)
    return {
        name: [bound(size(runs), failures(runs)), *interval(bound(size(drawn), failures(drawn)) for drawn in again)]
        for name, size in {"lr": lrs, "distance": distances}.items()
    }


def lrs(runs: Runs) -> Array:
    """Their LRs."""
    return np.array([run.lr for run in runs])


def distances(runs: Runs) -> Array:
    """How far their weights go in all, relative to their length."""
    return np.array([distance(run.r, run.steps) for run in runs])


def failures(runs: Runs) -> list[bool]:
    """Which of them fail."""
    return [run.failed() for run in runs]


def drawn_settings(runs: Runs) -> list[list[Tuned]]:
    """As many settings as there are, drawn with replacement."""
    settings: dict[int, list[Tuned]] = {}
    for run in runs:
        settings.setdefault(run.setting, []).append(run)
    kinds, random = list(settings.values()), np.random.default_rng(0)
    return [[run for at in random.integers(len(kinds), size=len(kinds)) for run in kinds[at]] for _ in range(DRAWS)]


def what_matters(runs: Runs) -> dict[str, list[float]]:
    """Powers p of steps, batch and warm-up so that lr * product of fact^p tells best which trainings fail; with intervals.

    If only the distance counted, steps would have 0.5; if only the LR did, 0.
    """
    again = [_powers(drawn) for drawn in drawn_settings(runs)]
    ends = np.percentile(again, [2.5, 97.5], axis=0).T
    return {
        name: [float(power), *map(float, two)]
        for name, power, two in zip(("steps", "batch", "warm-up"), _powers(runs), ends, strict=True)
    }


def _powers(runs: Runs) -> Any:
    facts = [[math.log(run.lr), math.log(run.steps), math.log(run.batch), run.warmup] for run in runs]
    x = np.array(facts) - np.mean(facts, axis=0)
    found = LogisticRegression(C=1e6, max_iter=1000).fit(x, [run.failed() for run in runs]).coef_[0]
    return found[1:] / found[0]
