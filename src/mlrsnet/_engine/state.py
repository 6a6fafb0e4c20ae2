"""The state of an engine as `LearnedLR.state_dict` has it: plain numbers and CPU tensors.

The format is that of version 0.1, so its checkpoints still load.
"""

import math
from dataclasses import astuple
from typing import Any, get_type_hints

import torch
from torch import Tensor

from mlrsnet import _check
from mlrsnet._engine.contract import Rule, Snapshot
from mlrsnet._engine.engine import Engine
from mlrsnet._engine.groups import first_group
from mlrsnet._engine.validation import IN_A_ROW, MOST_CUTS, Validation
from mlrsnet._features import Horizon
from mlrsnet.schedule import Schedule

VERSION = 1
MOST = 2**53
"""Steps; a float can count no further."""
EXTEND = "extend(total_steps) to prolong it"
RULE_KEYS = ("num_classes", "scale", "min_lr", "max_lr")
KEYS = {"version", "schedule", "total_steps", "last_epoch", "pending", *Snapshot.__annotations__}
MEASURED_KEYS = ("measured_sum", "measured_weight", "depth", "parameters", "measured_steps", "shrink")
"""Of schedules with a measured range only, so that states of the others are those of version 0.1."""
PLAN_KEYS = ("planned_steps", "anneal_begin", "anneal_start")
"""Of runs that `LearnedLR.anneal` ends only. A run whose end is open has `open_ended`. One whose LR is not that of the first group,
as it was in version 0.1, has `main_group`."""
VALIDATION_KEYS = tuple(f"validation_{name}" for name in ("lowest", "waited", "cuts", "has_fallen"))
"""Of runs that read validation losses only."""


def save(engine: Engine) -> dict[str, Any]:
    """Everything that the next step depends on; waits for the device."""
    snapshot = engine.backend.snapshot()
    engine.course.saved_at = engine.steps
    engine.problems.warn_counted(snapshot, engine.rule)
    if engine.on_stuck == "warn":  # whatever happens, a state can be saved
        engine.check_vital_signs()
    return {
        "version": VERSION,
        "schedule": schedule_number(engine.rule.schedule),
        "total_steps": engine.total_steps,
        "last_epoch": engine.steps,
        "pending": torch.tensor([float(loss) for loss in engine.losses.pending], dtype=torch.float64),
        **_numbers(engine.rule),
        **snapshot,
        **_measured(engine),
        **_plan(engine),
        **_validation(engine.validation),
        **({} if engine.main == first_group(engine.optimizer) else {"main_group": engine.main}),
    }


def load(engine: Engine, saved: dict[str, Any]) -> None:
    """Continue from what `save` returned, with a warning about arguments that differ."""
    state = dict(saved)
    _check_numbers(state)
    numbers = {name: state.pop(name) for name in RULE_KEYS if name in state}  # the first states had none
    plan = {name: state.pop(name) for name in PLAN_KEYS} if state.keys() >= set(PLAN_KEYS) else {}
    seen = _seen({name: state.pop(name) for name in VALIDATION_KEYS}) if state.keys() >= set(VALIDATION_KEYS) else None
    is_open = bool(state.pop("open_ended", False))
    main = int(state.pop("main_group", first_group(engine.optimizer)))
    _check_state(state, engine.rule.schedule)
    planned = plan.get("planned_steps", state["total_steps"])
    if not engine.is_open and (is_open or planned != engine.planned_steps):
        _check.warn(
            f"the saved run had total_steps={None if is_open else planned}, which replaces {engine.planned_steps}; "
            f"call {'anneal(steps) to end it' if is_open else 'anneal(steps) to prolong it' if plan else EXTEND}"
        )
    for name, value in _numbers(engine.rule).items():
        if numbers.get(name, value) != value:
            _check.warn(
                f"the saved run had {name}={numbers[name] or 'none'}, this one has {value or 'none'}, and gives other LRs: "
                f"construct LearnedLR with the saved run's {name} to continue as it would have"
            )
    engine.losses.pending = state["pending"].tolist()
    total, weight, depth, parameters, steps, shrink = (state.get(name, 1) for name in MEASURED_KEYS)
    engine.is_annealing, engine.is_open = bool(plan), is_open
    engine.restore(
        state,  # type: ignore[arg-type]
        state["last_epoch"],
        Horizon(state["total_steps"], plan.get("anneal_begin", 0), plan.get("anneal_start", 0)),
        planned,
        main,
        (total, weight),
        (depth, parameters),
        steps,
        shrink if isinstance(shrink, torch.Tensor) else None,
        seen,
    )


def _measured(engine: Engine) -> dict[str, Any]:
    """What only a measured range has."""
    if engine.meter is None:
        return {}
    numbers, shrink = engine.meter.numbers(), engine.meter.counted.shrink.cpu().clone()
    known = (engine.depth, engine.parameters, engine.meter.steps)
    return dict(zip(MEASURED_KEYS, (*numbers, *known, shrink), strict=True))


def _validation(seen: Validation) -> dict[str, Any]:
    """What only a run with validation losses has."""
    return dict(zip(VALIDATION_KEYS, astuple(seen), strict=True)) if seen.lowest < math.inf else {}


def _seen(saved: dict[str, Any]) -> Validation:
    """The same again; refuses what `Validation` never has."""
    lowest, waited, cuts, has_fallen = saved.values()
    tests = (math.isfinite(lowest), 0 <= waited < IN_A_ROW, 0 <= cuts <= MOST_CUTS, True)
    for name, good in zip(saved, tests, strict=True):
        if not good:
            raise _strange(name)
    return Validation(float(lowest), waited, cuts, bool(has_fallen))


def _plan(engine: Engine) -> dict[str, int]:
    """What only a run with another end than planned has."""
    if engine.is_open:
        return {"open_ended": 1}
    if not engine.is_annealing:
        return {}
    return dict(zip(PLAN_KEYS, (engine.planned_steps, engine.horizon.begin, engine.horizon.start), strict=True))


def schedule_number(schedule: Schedule) -> int:
    """A schedule's fingerprint as a number, since a state holds only numbers and tensors."""
    return int(schedule.fingerprint()[:15], 16)


def _numbers(rule: Rule) -> dict[str, float]:
    """The arguments that decide LRs; 0 for no `num_classes`, infinity for no `max_lr`."""
    return {name: getattr(rule, name) or 0 for name in RULE_KEYS}


def _check_state(state: dict[str, Any], schedule: Schedule) -> None:
    keys = KEYS.union(MEASURED_KEYS if schedule.card.gamma.is_measured else ())
    if state.get("version") != VERSION or state.keys() != keys:
        raise ValueError(
            f"state_dict must be one saved by LearnedLR.state_dict (version {VERSION}, keys {sorted(keys)}), "
            f"got version {state.get('version')!r}, keys {sorted(map(str, state))}: pass the state saved for the scheduler"
        )
    if state["schedule"] != schedule_number(schedule):
        raise ValueError(
            f"the state was saved with another schedule than {schedule!r}: construct LearnedLR with the saved run's"
        )
    _check_kinds(state, schedule)


def _check_numbers(state: dict[str, Any]) -> None:
    """Refuse what is no number where a number must be, if there is something at all."""
    lowest, *counts = VALIDATION_KEYS
    whole = ("version", "schedule", "total_steps", "last_epoch", "open_ended", "main_group", *PLAN_KEYS, *counts)
    for name in (*whole, *RULE_KEYS, lowest):
        if name in state and not isinstance(state[name], int if name in whole else int | float):
            raise _strange(name)


def _check_kinds(state: dict[str, Any], schedule: Schedule) -> None:
    """Refuse values of another kind than `save` writes, before anything is restored from them."""
    kinds = {**get_type_hints(Snapshot), "pending": Tensor}
    ranges = {"step": (0, MOST), "last_epoch": (0, MOST), "total_steps": (1, MOST), "phase": (-1, schedule.num_phases)}
    tests = {
        **{name: _is(kind, state[name]) for name, kind in kinds.items()},
        **{name: low <= state[name] < high for name, (low, high) in ranges.items() if isinstance(state[name], int)},
    }
    for name, good in tests.items():
        if not good:
            raise _strange(name)
    if state["memory"].shape != schedule.net.initial_state().shape:
        raise _strange("memory")
    for name in ("history", "pending"):
        if state[name].ndim != 1:
            raise _strange(name)


def _is(kind: type, value: Any) -> bool:
    """Whether a value is of a kind. A whole number is a float, too, unless it is too long for one."""
    return isinstance(value, kind) or (kind is float and isinstance(value, int) and abs(value) <= MOST)


def _strange(name: str) -> ValueError:
    return ValueError(
        f"state_dict must hold what LearnedLR.state_dict saved, got another kind of value under {name!r}: pass the state saved for "
        "the scheduler"
    )
