"""Named things with options: what a RunSpec's words lead to, checked against the signatures of what is built."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlrsnet import _check


def defaults(build: Callable[..., Any]) -> dict[str, Any]:
    """The options that a builder takes, its keyword-only arguments, and what they are unless given."""
    parameters = inspect.signature(build).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def names(build: Callable[..., Any]) -> list[str]:
    """The options that a builder takes."""
    return list(defaults(build))


def check(
    field: str, name: str, build: Callable[..., Any], options: Mapping[str, Any], shared: Sequence[str] = ()
) -> None:
    """Refuse options that the builder does not take, and values of another kind than their defaults.

    `shared` are names of options that all of its kind have.
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
    """Ranges are the builder's own matter."""
    if isinstance(default, bool) and not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")
    if type(default) is int and type(value) is not int:
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if isinstance(default, float):
        _check.real(name, value)
    if isinstance(default, str) and not isinstance(value, str):
        raise ValueError(f"{name} must be a word, got {value!r}")
    if isinstance(default, tuple) and default:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ValueError(f"{name} must be a list such as {list(default)}, got {value!r}")
        for item in value:
            _check_kind(f"each of {name}", default[0], item)
