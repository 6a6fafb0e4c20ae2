"""Rates: how a measured value falls with the horizon, as a slope of logarithms, beside what a theorem promises."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlrsnet_lab import checks


@dataclass(frozen=True)
class Fit:
    """The slope of a line by least squares, and its standard error."""

    slope: float
    error: float


@dataclass(frozen=True)
class Rate:
    """A function of the horizon T up to a constant factor, as a theorem's O(...) has it.

    >>> Rate("1/sqrt(T)", lambda T: T**-0.5).fit((30, 100, 300)).slope
    -0.5
    """

    name: str
    of: Callable[[int], float]

    def fit(self, horizons: Sequence[int]) -> Fit:
        """Its own exponent over these horizons: a factor ln T moves it a little."""
        return fit_exponent(horizons, [self.of(T) for T in horizons])


CONSTANT = Rate("constant", lambda T: 1.0)
INVERSE = Rate("1/T", lambda T: 1 / T)
INVERSE_ROOT = Rate("1/sqrt(T)", lambda T: 1 / math.sqrt(T))
LOG_INVERSE = Rate("ln(T)/T", lambda T: math.log(T) / T)
LOG_INVERSE_ROOT = Rate("ln(T)/sqrt(T)", lambda T: math.log(T) / math.sqrt(T))
SQUARED_LOG_INVERSE = Rate("ln^2(T)/T", lambda T: math.log(T) ** 2 / T)
INVERSE_LOG = Rate("1/ln(T)", lambda T: 1 / math.log(T))
INVERSE_ROOT_LOG = Rate("1/(sqrt(T) ln(T))", lambda T: 1 / (math.sqrt(T) * math.log(T)))
INVERSE_TIMES_LOG = Rate("1/(T ln(T))", lambda T: 1 / (T * math.log(T)))


def fit_exponent(horizons: Sequence[int], values: Sequence[float]) -> Fit:
    """p of value ~ T^p: the slope of ln(value) against ln(T)."""
    return fit_line([math.log(T) for T in horizons], [math.log(checks.positive("value", value)) for value in values])


def fit_line(x: Sequence[float], y: Sequence[float]) -> Fit:
    """slope = S_xy / S_xx; error^2 = sum of squared residuals / ((n - 2) S_xx).

    >>> fit_line([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
    Fit(slope=2.0, error=0.0)
    """
    n = checks.whole_number("points", len(x), 3, "two of them leave no standard error")
    mean_x, mean_y = sum(x) / n, sum(y) / n
    S_xx = sum((a - mean_x) ** 2 for a in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / S_xx
    residuals = sum((b - mean_y - slope * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    return Fit(slope, math.sqrt(residuals / ((n - 2) * S_xx)))
