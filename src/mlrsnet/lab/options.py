"""Named things with options: what a RunSpec's words lead to, checked against the signatures of what is built."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def names(build: Callable[..., Any]) -> list[str]:
    """The options that a builder takes: its keyword-only arguments."""
    parameters = inspect.signature(build).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def check(
    field: str, name: str, build: Callable[..., Any], options: Mapping[str, Any], shared: Sequence[str] = ()
) -> None:
    """Refuse options that the builder does not take; `shared` are those that all of its kind have."""
    known = [*names(build), *shared]
    unknown = [key for key in options if key not in known]
    if unknown:
        has = f"its options are {', '.join(known)}" if known else "it has none"
        raise ValueError(f"{field} has no option {unknown[0]!r} for {name!r}: {has}")
