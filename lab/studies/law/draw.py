"""Random choices that depend on the number of a row only."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


class Draw:
    """Choices of one row.

    >>> Draw(3).pick((1, 2, 3)) == Draw(3).pick((1, 2, 3))
    True
    """

    def __init__(self, number: int) -> None:
        self.number, self._random = number, np.random.default_rng([20261119, number])

    def pick(self, values: Sequence[Any]) -> Any:
        """One of them."""
        return values[int(self._random.integers(len(values)))]

    def between(self, low: float, high: float) -> float:
        """A number, by its logarithm."""
        return math.exp(self._random.uniform(math.log(low), math.log(high)))

    def chance(self, share: float) -> bool:
        """Yes, so often."""
        return bool(self._random.uniform() < share)
