"""Numbers: which values of a file count as one, their mean and spread, and how they are printed."""

import math
from collections.abc import Iterable
from statistics import mean, stdev
from typing import Any, NamedTuple

NOTHING = "-"


class Stat(NamedTuple):
    """Mean and sample standard deviation; one number alone has no spread."""

    mean: float
    std: float | None = None


def number(value: Any) -> float | None:
    """A finite number, or None for anything else in a file.

    >>> number(3), number("3"), number(float("nan")), number(True)
    (3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer larger than any float
        return None


def stat(values: Iterable[float | None]) -> Stat | None:
    """Over the values that are there; None if there are none.

    >>> stat([1.0, None, 3.0])
    Stat(mean=2.0, std=1.4142135623730951)
    """
    there = [value for value in values if value is not None]
    if not there:
        return None
    return Stat(mean(there), stdev(there) if len(there) > 1 else None)


def metric_text(value: float | None) -> str:
    """Accuracy or perplexity.

    >>> metric_text(94.128), metric_text(None)
    ('94.13', '-')
    """
    if value is None:
        return NOTHING
    return f"{value:.2f}" if abs(value) < 1e5 else f"{value:.3g}"


def short_text(value: float | None) -> str:
    """Losses and seconds: three significant digits.

    >>> [short_text(value) for value in (0.012, 1.2, 123.4, 12345.6, 1e-7, 0)]
    ['0.0120', '1.20', '123', '12,346', '1.00e-07', '0']
    """
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:#.3g}".rstrip(".")


def short_stat(value: Stat | None) -> str:
    """Losses and seconds: the mean alone.

    >>> short_stat(Stat(0.0123, 0.1)), short_stat(None)
    ('0.0123', '-')
    """
    return short_text(value.mean if value else None)


def metric_stat(value: tuple[float, float | None] | None) -> str:
    """Mean and spread, both with the metric's two decimals.

    >>> metric_stat(Stat(94.1, 0.123)), metric_stat(Stat(94.1)), metric_stat(None)
    ('94.10 ± 0.12', '94.10', '-')
    """
    mean, std = value or (None, None)
    return metric_text(mean) if std is None else f"{metric_text(mean)} ± {metric_text(std)}"


def difference_text(value: float | None) -> str:
    """Ours minus the paper's, with its sign.

    >>> difference_text(0.5), difference_text(-1.234)
    ('+0.50', '-1.23')
    """
    return NOTHING if value is None else f"{value:+.2f}"


def count_text(count: int, noun: str) -> str:
    """A count and its noun.

    >>> count_text(1, "run"), count_text(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
