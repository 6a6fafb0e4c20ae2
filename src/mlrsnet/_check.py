"""Argument checks. An error names the argument, the rule, the value and what to do next."""

import math
import operator
import sys
import warnings
from collections.abc import Iterable
from typing import SupportsIndex


def whole_number(name: str, value: object, minimum: int = 1, hint: str = "") -> int:
    """Return `value` as an int, or raise naming the argument and the rule."""
    number = operator.index(value) if isinstance(value, SupportsIndex) and not isinstance(value, bool) else None
    if number is None or number < minimum:
        raise ValueError(f"{name} must be a whole number >= {minimum}, got {value!r}{_then(hint)}")
    return number


def number_of_steps(name: str, value: object, minimum: int = 1, hint: str = "") -> int:
    """Return `value` as an int, or raise. A float such as 100.0, which a division leaves, is whole too; 100.5 must be rounded."""
    if isinstance(value, float) and not value.is_integer() and math.isfinite(value):
        hint = f"{hint}, rounded up: math.ceil({value!r})" if hint else f"pass math.ceil({value!r})"
    return whole_number(name, int(value) if isinstance(value, float) and value.is_integer() else value, minimum, hint)


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
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool | str) or not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {value!r}{_then(hint)}")
    return number


def not_negative(name: str, value: object, hint: str = "") -> float:
    """Return `value` as a finite float >= 0, or raise."""
    number = real(name, value, hint)
    if number < 0:
        raise ValueError(f"{name} must be >= 0, got {value!r}{_then(hint)}")
    return number


def below_one(name: str, value: object, hint: str = "") -> float:
    """Return `value` as a float in [0, 1), or raise."""
    number = real(name, value, hint)
    if not 0 <= number < 1:
        raise ValueError(f"{name} must be in [0, 1), got {value!r}{_then(hint)}")
    return number


def yes_or_no(name: str, value: object) -> bool | None:
    """Return `value` if it is True, False or None, or raise."""
    if value is None or isinstance(value, bool):
        return value
    raise ValueError(f"{name} must be True, False or None, got {value!r}: leave it out to let the weights tell")


def one_of(name: str, value: object, allowed: Iterable[str]) -> str:
    """Return `value` if it is one of `allowed`, or raise listing them."""
    options = tuple(allowed)
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(options)}; got {value!r}")
    return str(value)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's own code, however deep inside this package or torch we are."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("mlrsnet.", "torch.")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _then(hint: str) -> str:
    return f": {hint}" if hint else ""
