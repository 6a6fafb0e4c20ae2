"""Options of what a RunSpec names, checked against the signature of its builder."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlrsnet_lab import checks


def defaults(build: Callable[..., Any]) -> dict[str, Any]:
    """A builder's options, which are its keyword-only arguments, and their defaults."""
    parameters = inspect.signature(build).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def names(build: Callable[..., Any]) -> list[str]:
    """The names of a builder's options."""
    return list(defaults(build))


def check(
    field: str, name: str, build: Callable[..., Any], options: Mapping[str, Any], shared: Sequence[str] = ()
) -> None:
    """Raise on options that the builder does not have, and on values of another type than their defaults.

    `shared` are options that all builders of this field have.
    """
    known = [*names(build), *shared]
    unknown = [key for key in options if key not in known]
    if unknown:
        has = f"its options are {', '.join(known)}" if known else "it has none"
        raise ValueError(f"{field} has no option {unknown[0]!r} for {name!r}: {has}")
    parameters = inspect.signature(build).parameters
    for key in set(options) - set(shared):
        _check_kind(key, parameters[key].default, options[key])


def _check_kind(name: str, default: Any, value: Any) -> None:
    """Check the type only; the builder checks the range."""
    if isinstance(default, bool) and not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")
    if type(default) is int and type(value) is not int:
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if isinstance(default, float):
        checks.real(name, value)
    if isinstance(default, str) and not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {value!r}")
    if isinstance(default, tuple) and default:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ValueError(f"{name} must be a list such as {list(default)}, got {value!r}")
        for item in value:
            _check_kind(f"each of {name}", default[0], item)
