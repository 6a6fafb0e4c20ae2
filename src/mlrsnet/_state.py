"""What `LearnedLR.state_dict` holds: plain numbers, words and CPU tensors, which `torch.load(weights_only=True)` reads."""

import math
from collections.abc import Callable
from dataclasses import asdict, astuple
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlrsnet import _check
from mlrsnet._driver import Driver
from mlrsnet._numbers import MOST_LRS
from mlrsnet._validation import IN_A_ROW, MOST_CUTS, Validation
from mlrsnet.law import Facts
from mlrsnet.ops import leaves, rebuilt
from mlrsnet.plan import UNIT, Plan

VERSION = 2
MOST = 2**53
"""Steps; a float can count no further."""


def save(driver: Driver, state: Any, lr: float, steps: int, lrs: np.ndarray) -> dict[str, Any]:
    """Everything that the next step depends on."""
    told = driver.told
    return {
        "version": VERSION,
        "schedule": driver.law.name,
        "fingerprint": driver.law.fingerprint(),
        "steps": steps,
        "plan": list(driver.plan),
        "end": driver.end,
        "is_open_ended": driver.is_open_ended,
        "is_annealing": driver.is_annealing,
        "has_begun": driver.has_begun or driver.is_loaded,
        "main": driver.main,
        "lr": lr,
        "arguments": _arguments(driver),
        "facts": driver.facts._asdict(),
        "law": [torch.from_numpy(one.copy()) if isinstance(one, np.ndarray) else one for one in leaves(state)],
        "sensor": driver.sensor.state(),
        "distance": driver.distance.state(),
        "window": [float(loss) for loss in driver.window],
        "told": None if told is None else float(told),
        "validation": list(astuple(driver.validation)),
        "stride": driver.numbers.stride,
        "history": torch.from_numpy(lrs.copy()),
    }


def load(driver: Driver, saved: dict[str, Any]) -> None:
    """Continue from what `save` returned, with a warning about arguments that differ."""
    _check_keys(saved)
    _check_law(driver, saved)
    _check_kinds(driver, saved)
    plan, state = Plan(*saved["plan"]), _law_state(driver, saved)
    _tell_other_end(driver, saved, plan)
    _tell_other_arguments(driver, saved["arguments"])
    _tell_other_facts(driver, saved)
    driver.settle()
    driver.facts, driver.is_loaded, driver.steps = Facts(**saved["facts"]), bool(saved["has_begun"]), saved["steps"]
    driver.is_open_ended, driver.is_annealing = bool(saved["is_open_ended"]), bool(saved["is_annealing"])
    driver.numbers.stride = saved["stride"]
    driver.follow(plan, saved["end"])
    driver.numbers.restore(state, saved["lr"], saved["steps"], saved["history"].tolist())
    driver.resume(saved["main"], Validation(*saved["validation"]))
    driver.sensor.load(saved["sensor"])
    driver.distance.load(saved["distance"], [weight for group in driver.groups for weight in group["params"]])
    driver.window = list(saved["window"])
    if saved["told"] is not None:
        driver.told = driver.numbers.tell(saved["told"])


def _check_keys(saved: dict[str, Any]) -> None:
    version = saved.get("version") if isinstance(saved, dict) else None
    if _is_count(version) and version == 1 and "last_epoch" in saved:
        raise ValueError(
            "state_dict must be of this version of LearnedLR, got one that was saved before version 0.2: its sensors saw "
            "other numbers, so finish that training with the version that began it, or make a new LearnedLR with total_steps= "
            "the steps that are left"
        )
    if not _is_count(version) or version != VERSION or saved.keys() != KINDS.keys():
        found = sorted(map(str, saved)) if isinstance(saved, dict) else type(saved).__name__
        raise ValueError(
            f"state_dict must be one saved by LearnedLR.state_dict (version {VERSION}, keys {sorted(KINDS)}), got {found}: pass "
            "the state saved for the scheduler"
        )


def _check_law(driver: Driver, saved: dict[str, Any]) -> None:
    if saved["fingerprint"] != driver.law.fingerprint():
        raise ValueError(
            f"state_dict must be saved with the schedule of this LearnedLR, {driver.law.name!r}, got one of "
            f"{saved['schedule']!r} with other numbers: construct LearnedLR with the saved run's schedule, in the same version "
            "of mlrsnet"
        )


def _check_kinds(driver: Driver, saved: dict[str, Any]) -> None:
    for name, fits in KINDS.items():
        if not fits(saved[name]):
            raise _strange(name)
    fresh = driver.sensor.state()
    if saved["sensor"].keys() != fresh.keys() or not all(
        isinstance(one, Tensor) == isinstance(fresh[name], Tensor) for name, one in saved["sensor"].items()
    ):
        raise _strange("sensor")


def _law_state(driver: Driver, saved: dict[str, Any]) -> Any:
    """The law's state, of the same kinds as a fresh one."""
    fresh = driver.law.begin(driver.facts)
    values, kinds = saved["law"], list(leaves(fresh))
    if len(values) != len(kinds):
        raise _strange("law")
    return rebuilt(fresh, iter([_alike(value, kind) for value, kind in zip(values, kinds, strict=True)]))


def _alike(value: Any, kind: Any) -> Any:
    if isinstance(kind, np.ndarray):
        if not isinstance(value, Tensor) or value.shape != kind.shape or not bool(torch.isfinite(value).all()):
            raise _strange("law")
        return value.to(torch.from_numpy(kind.copy())).numpy().copy()
    if not _is_real(value) or (isinstance(kind, int) and not -1 <= value <= MOST):
        raise _strange("law")
    return value


def _tell_other_end(driver: Driver, saved: dict[str, Any], plan: Plan) -> None:
    was_open = bool(saved["is_open_ended"])
    if not driver.is_open_ended and (was_open or plan.planned != driver.plan.planned):
        then = "anneal(steps) to end it" if was_open else "anneal(steps) or extend(total_steps) to move the end"
        _check.warn(
            f"the saved run had total_steps={None if was_open else plan.planned}, which replaces {driver.plan.planned}; call {then}"
        )


def _tell_other_arguments(driver: Driver, saved: dict[str, Any]) -> None:
    for name, value in _arguments(driver).items():
        if saved.get(name) != value:
            _check.warn(
                f"the saved run had {name}={saved.get(name)}, this one has {value}, and gives other LRs: construct LearnedLR "
                f"with the saved run's {name} to continue as it would have"
            )


def _tell_other_facts(driver: Driver, saved: dict[str, Any]) -> None:
    """What was told of the training, and is not what it began with."""
    was = Facts(**saved["facts"])
    for name, told, before in (
        ("trained", driver.facts.is_trained, None if was.is_trained is None else bool(was.is_trained)),
        ("batch_size", driver.facts.batch_size, was.batch_size),
    ):
        if not driver.has_begun and told not in (None, before):
            _check.warn(
                f"the saved run had {name}={before}, which replaces {told}: pass {name}=None, or make a new LearnedLR with "
                "total_steps= the steps that are left"
            )


def _arguments(driver: Driver) -> dict[str, Any]:
    """The arguments that decide LRs."""
    limits = asdict(driver.limits)
    return {
        "num_classes": driver.facts.num_classes,
        "scale": limits["scale"],
        "min_lr": limits["low"],
        "max_lr": limits["high"],
    }


def _strange(name: str) -> ValueError:
    return ValueError(
        f"state_dict must hold what LearnedLR.state_dict saved, got another kind of value under {name!r}: pass the state "
        "saved for the scheduler"
    )


def _is_word(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, int) and value in (0, 1)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < MOST


def _is_real(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= MOST)


def _is_real_or_none(value: Any) -> bool:
    return value is None or _is_real(value)


def _is_vector(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 1 and value.is_floating_point()


def _is_plan(value: Any) -> bool:
    if not _are(_is_count, len(Plan._fields))(value):
        return False
    plan = Plan(*value)
    return plan.begin < plan.total_steps and plan.planned >= 1 and plan.start < UNIT


def _is_validation(value: Any) -> bool:
    """What `Validation` may have: lowest, waited, cuts, has_fallen."""
    if not isinstance(value, list | tuple) or len(value) != 4:
        return False
    lowest, waited, cuts, has_fallen = value
    are_counts = _is_count(waited) and _is_count(cuts) and _is_flag(has_fallen)
    return _is_real(lowest) and lowest == lowest and are_counts and waited < IN_A_ROW and cuts <= MOST_CUTS


def _are(fits: Callable[[Any], bool], count: int | None = None) -> Callable[[Any], bool]:
    """Whether a value is a list of such values, of so many if a count is given."""
    return lambda value: isinstance(value, list | tuple) and count in (None, len(value)) and all(map(fits, value))


KINDS: dict[str, Callable[[Any], bool]] = {
    "version": _is_count,
    "schedule": _is_word,
    "fingerprint": _is_word,
    "steps": _is_count,
    "plan": _is_plan,
    "end": _is_count,
    "is_open_ended": _is_flag,
    "is_annealing": _is_flag,
    "has_begun": _is_flag,
    "main": _is_count,
    "lr": lambda value: _is_real(value) and 0 <= value < math.inf,
    "arguments": lambda value: isinstance(value, dict) and all(map(_is_real_or_none, value.values())),
    "facts": lambda value: (
        isinstance(value, dict) and value.keys() == set(Facts._fields) and all(map(_is_real_or_none, value.values()))
    ),
    "law": _are(lambda value: True),
    "sensor": lambda value: isinstance(value, dict) and all(_is_real(one) or _is_vector(one) for one in value.values()),
    "distance": lambda value: (
        isinstance(value, dict) and all(map(_is_count, value)) and all(map(_is_vector, value.values()))
    ),
    "window": _are(_is_real),
    "told": _is_real_or_none,
    "validation": _is_validation,
    "stride": lambda value: _is_count(value) and value >= 1,
    "history": lambda value: _is_vector(value) and len(value) <= MOST_LRS,
}
"""What a state holds, and what each may be."""
