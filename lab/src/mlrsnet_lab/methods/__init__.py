"""Methods that decide the step, by name. A new method is one file with one class, and one line here."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mlrsnet.baselines import HAND_DESIGNED, factors
from mlrsnet_lab import checks
from mlrsnet_lab import options as named
from mlrsnet_lab.methods.base import Method, Setting
from mlrsnet_lab.methods.direct import Direct
from mlrsnet_lab.methods.hand_designed import ByTable, ValStrategy
from mlrsnet_lab.methods.learned import Learned, RelativeRule
from mlrsnet_lab.methods.mlr_snet import MLRSNet
from mlrsnet_lab.methods.own import HDMethod, L4Method, RTHOMethod

__all__ = ["METHODS", "SCHEDULES", "Method", "Setting", "build", "check", "defaults", "register", "uses_lr"]

METHODS: dict[str, Callable[..., Method]] = {
    "val-strategy": ValStrategy,
    "learned": Learned,
    "relative-rule": RelativeRule,
    "mlr-snet": MLRSNet,
    "direct": Direct,
    "l4": L4Method,
    "hd": HDMethod,
    "rtho": RTHOMethod,
}
SCHEDULES: dict[str, Callable[..., Method]] = {
    **{name: partial(ByTable, name=name) for name in HAND_DESIGNED},
    **METHODS,
}
"""Every name that a RunSpec's `schedule` can have."""


def register(name: str, method: Callable[..., Method]) -> None:
    """Add your own method, so that a `RunSpec` can name it.

    Args:
        name: a new name for `RunSpec.schedule`.
        method: a `Method` class that takes a `Setting` and keyword-only options.
    """
    if name in SCHEDULES and METHODS.get(name) is not method:
        raise ValueError(f"name must be new, but there is already a schedule named {name!r}: choose another name")
    METHODS[name] = SCHEDULES[name] = method


def build(name: str, setting: Setting, options: Mapping[str, Any]) -> Method:
    """The method of that name, in a training."""
    return SCHEDULES[name](setting, **options)


def defaults(name: str) -> dict[str, Any]:
    """A schedule's options and their defaults; empty for an unknown schedule."""
    if name in HAND_DESIGNED:
        return {**named.defaults(HAND_DESIGNED[name]), "warmup": 0.0}
    return named.defaults(METHODS[name]) if name in METHODS else {}


def uses_lr(name: str) -> bool:
    """Whether a run's `lr` has an effect under this schedule."""
    return bool(getattr(METHODS.get(name), "uses_lr", True))


def check(name: str, options: Mapping[str, Any]) -> None:
    """Refuse unknown names and options."""
    checks.one_of("schedule", name, SCHEDULES)
    if name in METHODS:
        named.check("schedule_options", name, METHODS[name], options)
    else:
        named.check("schedule_options", name, HAND_DESIGNED[name], options, shared=["warmup"])
        factors(name, 10, 1, **options)  # raises on bad values before any data is read
