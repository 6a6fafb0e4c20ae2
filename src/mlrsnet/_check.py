"""Argument checks that say the argument, the rule, the value and what to do next."""

import math
from collections.abc import Iterable


def whole_number(name: str, value: object, minimum: int = 1, hint: str = "") -> int:
    """Return `value` as an int, or raise naming the argument and the rule."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name} must be a whole number >= {minimum}, got {value!r}{_then(hint)}")
    return value


def positive(name: str, value: object, hint: str = "") -> float:
    """Return `value` as a finite positive float, or raise."""
    number = real(name, value, hint)
    if number <= 0:
        raise ValueError(f"{name} must be > 0, got {value!r}{_then(hint)}")
    return number


def real(name: str, value: object, hint: str = "") -> float:
    """Return `value` as a finite float, or raise."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool | str) or not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {value!r}{_then(hint)}")
    return number


def one_of(name: str, value: object, allowed: Iterable[str]) -> str:
    """Return `value` if it is one of `allowed`, or raise listing them."""
    options = tuple(allowed)
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(options)}; got {value!r}")
    return str(value)


def _then(hint: str) -> str:
    return f": {hint}" if hint else ""
