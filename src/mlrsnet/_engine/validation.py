"""Validation losses: where they rise, the network over-fits, and steps get shorter.

v_1, ..., v_k: the losses so far. b: the lowest of them. The last three are above b, and rise if

    (v_{k-2} + v_{k-1} + v_k) / 3 - b > s sqrt(2 ln k),      s = median |v_{i-1} - 2 v_i + v_{i+1}| / 1.65

s is the standard deviation of normal noise around a line. The lowest of k such losses lies about s sqrt(2 ln k) below their mean:
less than that is no rise. So a noisy loss that still falls, as it often does while the LR is high, seldom shortens steps. One that
has stopped falling does so sooner or later.
"""

import math
from statistics import fmean, median

SHARE = 0.1
"""Of the LR that is left where the losses rise."""

IN_A_ROW = 3
"""Losses above the lowest before anything is done; then as many again."""

MOST_KEPT = 100
"""Losses that tell the noise."""

SPREAD = 0.6745 * math.sqrt(6)
"""The median of |v_{i-1} - 2 v_i + v_{i+1}| for noise with standard deviation 1."""


def noise(losses: list[float]) -> float:
    """s, the standard deviation of the noise; at least three losses.

    >>> noise([3.0, 2.0, 1.0, 0.0]), round(noise([0.0, 1.0, 0.0, 1.0]), 2)
    (0.0, 1.21)
    """
    return median(abs(a - 2 * b + c) for a, b, c in zip(losses, losses[1:], losses[2:], strict=False)) / SPREAD


class Validation:
    """Validation losses: the last ones, the lowest, how many since it or since steps were shortened, and how many in all."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.lowest, self.waited, self.count = math.inf, 0, 0

    @property
    def only_rose(self) -> bool:
        """Whether the first loss is still the lowest, as far as is known."""
        return self.count == len(self.losses) > 1 and self.losses[0] == self.lowest

    def see(self, loss: float) -> bool:
        """Whether steps have to be shortened, after one more loss.

        >>> seen = Validation()
        >>> [seen.see(loss) for loss in (3.0, 2.0, 1.5, 1.6, 1.8, 2.0, 2.2)]
        [False, False, False, False, False, False, True]
        """
        self.losses = [*self.losses, loss][-MOST_KEPT:]
        self.count += 1
        self.waited = 0 if loss < self.lowest else self.waited + 1
        self.lowest = min(self.lowest, loss)
        if self.waited < IN_A_ROW:
            return False
        rise = fmean(self.losses[-IN_A_ROW:]) - self.lowest
        if rise <= noise(self.losses) * math.sqrt(2 * math.log(self.count)):
            return False
        self.waited = 0
        return True
