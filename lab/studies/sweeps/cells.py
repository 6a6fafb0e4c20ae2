"""A cell: trainings that differ in nothing but the size of their steps; and what can be read off its curve."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from lab.studies.sweeps import steps as relative
from mlrsnet.default import DEEPEST

FEWEST = 3
"""Trainings of a cell: fewer have no middle."""


@dataclass(frozen=True)
class Cell:
    """Some relative steps, and the loss of each.

    Args:
        name: what it is.
        family: cells of a family are left out, and drawn in a bootstrap, together.
        group: cells of a group share a constant.
        steps, size, batch, depth: T, n, B and L of the law. For text, B counts sequences.
        has_norms, is_adaptive, is_trained: what the law asks of the network and its optimizer.
        curve: (r, loss) of each training, by r. A loss that is not finite, or more than `cap` above the best, counts as that.
        usual: the r of the one-line rule of its source; NaN for none.
        knows_size: whether `size` is known; else the group's constant stands for it.
        cap: the largest loss above the best.
    """

    name: str
    family: str
    group: str
    steps: float
    size: float
    batch: float
    curve: tuple[tuple[float, float], ...]
    depth: int = DEEPEST
    has_norms: bool = True
    is_adaptive: bool = True
    is_trained: bool = False
    usual: float = math.nan
    cap: float = 1.0
    knows_size: bool = True

    @property
    def law(self) -> float:
        """The r of the default; NaN if its facts are not known."""
        if not self.knows_size:
            return math.nan
        kinds = self.has_norms, self.is_adaptive, self.is_trained
        return relative.of_law(self.steps, self.size, self.batch, self.depth, *kinds)

    @property
    def before(self) -> float:
        """The same of the law before."""
        depth = 1 if self.has_norms else self.depth
        return relative.of_law_before(self.steps, self.size, depth, self.is_trained) if self.knows_size else math.nan

    @cached_property
    def log_sizes(self) -> Any:
        """log r of each training."""
        return np.log([r for r, _ in self.curve])

    @cached_property
    def excess(self) -> Any:
        """How far each loss is above the best one, at most `cap`."""
        losses = np.array([loss if math.isfinite(loss) else math.inf for _, loss in self.curve])
        return np.minimum(losses - losses.min(), self.cap)

    @cached_property
    def best(self) -> float:
        """The r of the lowest loss, by a parabola through it and its neighbours in log r; NaN at an edge of what was tried.

        >>> cell([0.01, 0.02, 0.04], [1.1, 1.0, 1.1]).best
        0.02
        >>> cell([0.01, 0.02, 0.04], [1.0, 1.1, 1.2]).best
        nan
        """
        at = int(np.argmin(self.excess))
        if at in (0, len(self.curve) - 1):
            return math.nan
        x, y = self.log_sizes[at - 1 : at + 2], self.excess[at - 1 : at + 2]
        curved, slope, _ = np.polyfit(x - x[1], y, 2)
        return float(round(math.exp(x[1] - slope / (2 * curved)), 9)) if curved > 0 else float(self.curve[at][0])

    def regret(self, r: float) -> float:
        """The loss at r above the best one tried: monotone cubics between trainings in log r, the edge's beyond them.

        >>> a = cell([0.01, 0.02, 0.04], [1.1, 1.0, 1.1])
        >>> round(a.regret(0.02), 3), round(a.regret(0.04), 3), round(a.regret(9), 3)
        (0.0, 0.1, 0.1)
        """
        at = np.clip(math.log(r), self.log_sizes[0], self.log_sizes[-1])
        return float(self._interpolated(at))

    @cached_property
    def _interpolated(self) -> Callable[[float], float]:
        return PchipInterpolator(self.log_sizes, self.excess)

    def tried(self, r: float) -> bool:
        """Whether r lies between the smallest and the largest that were tried."""
        return bool(self.log_sizes[0] - 1e-9 <= math.log(r) <= self.log_sizes[-1] + 1e-9)


def cell(sizes: list[float], losses: list[float], **known: Any) -> Cell:
    """A cell from its sizes and losses in any order; of equal sizes the mean loss counts."""
    at = {r: [loss for other, loss in zip(sizes, losses, strict=True) if other == r] for r in sorted(set(sizes))}
    curve = tuple((r, float(np.mean(found))) for r, found in at.items())
    facts = {"name": "", "family": "", "group": "", "steps": 500.0, "size": 1e4, "batch": 1.0}
    return Cell(**{**facts, "curve": curve, **known})
