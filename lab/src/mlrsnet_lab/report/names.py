"""Groups of equal runs, and names for them from what differs."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from mlrsnet_lab import methods
from mlrsnet_lab import options as named
from mlrsnet_lab.optimizers import OPTIMIZERS
from mlrsnet_lab.report.runs import Run

WHICH = ("schedule", "schedule_options.schedule")
FIRST = (*WHICH, "optimizer", "lr")
"""Named first; if nothing differs, all of them are named."""

NOT_EVERYONES = ("lr", "schedule_options.", "optimizer_options.")
"""Settings that a schedule or an optimizer may not have; then they are not mentioned."""


def by(key: Callable[[Run], Any], runs: Iterable[Run]) -> list[list[Run]]:
    """Runs with the same key together, in order of appearance."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return list(groups.values())


def same_spec(run: Run) -> str:
    """A key that runs share if only their seeds differ; a default counts the same whether it is given or not."""
    return json.dumps(defaults(run.spec) | settings(run.spec), sort_keys=True)


def same_method(run: Run) -> str:
    """As `same_spec`, but within a recipe each seed may use a schedule of its own, learned from that seed."""
    own = ("schedule_options.schedule", "schedule_options.name")
    return json.dumps({key: value for key, value in settings(run.spec).items() if key not in own}, sort_keys=True)


def settings(spec: dict[str, Any]) -> dict[str, str]:
    """Every setting but the seed and an LR without effect as text, options as "schedule_options.period".

    >>> settings({"lr": 0.1, "seed": 3, "schedule_options": {"period": 10}})
    {'lr': '0.1', 'schedule_options.period': '10'}
    """
    unused = () if methods.uses_lr(str(spec.get("schedule"))) else ("lr",)
    flat = {}
    for key, value in spec.items():
        if isinstance(value, dict):
            flat.update({f"{key}.{option}": plain(setting) for option, setting in value.items()})
        elif key not in ("seed", *unused):
            flat[key] = plain(value)
    return flat


def defaults(spec: dict[str, Any]) -> dict[str, str]:
    """Default options of this schedule and optimizer; those that depend on the training are left out.

    >>> defaults({"schedule": "learned", "optimizer": "sgdm"})["schedule_options.schedule"]
    'universal'
    """
    optimizer = str(spec.get("optimizer"))
    own = {
        "schedule_options": methods.defaults(str(spec.get("schedule"))),
        "optimizer_options": named.defaults(OPTIMIZERS[optimizer]) if optimizer in OPTIMIZERS else {},
    }
    return {f"{field}.{key}": plain(value) for field in own for key, value in own[field].items() if value is not None}


def plain(value: Any) -> str:
    """A setting as one would type it."""
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def different(specs: list[dict[str, Any]]) -> list[str]:
    """The settings in which these specs differ, the most important first."""
    flat = [settings(spec) for spec in specs]
    keys = dict.fromkeys((*FIRST, *(key for one in flat for key in one)))
    return [key for key in keys if len({one.get(key) for one in flat}) > 1]


def shared(runs: list[Run], key: str) -> str:
    """A setting that all of these runs share, as text; empty if they do not."""
    values = {settings(run.spec).get(key) for run in runs}
    value = values.pop() if len(values) == 1 else None
    return "" if value in (None, "null") else str(value)


def name(spec: dict[str, Any], keys: Iterable[str]) -> str:
    """These settings in words; those that this schedule or optimizer does not have are left out.

    >>> name({"schedule": "cosine", "optimizer": "sgd", "lr": 0.1, "clip_norm": None}, [*FIRST, "clip_norm"])
    'cosine, sgd, lr 0.1, no clip_norm'
    >>> name({"schedule": "learned", "optimizer": "sgd", "lr": 0.1}, [*FIRST, "schedule_options.hyper_lr"])
    'learned, schedule universal, sgd'
    """
    flat = defaults(spec) | settings(spec)
    own = [key for key in keys if key in flat or not key.startswith(NOT_EVERYONES)]
    return ", ".join(_word(key, flat.get(key)) for key in own)


def _word(key: str, value: str | None) -> str:
    if value is None or value == "null":
        return f"no {key.rpartition('.')[2]}"
    return value if key in ("schedule", "optimizer") else f"{key.rpartition('.')[2]} {value}"


def names(groups: list[list[Run]]) -> list[str]:
    """One name per group: its schedule, and what else distinguishes it from the others."""
    specs = [group[0].spec for group in groups]
    keys = dict.fromkeys((*WHICH, *different(specs))) if len(groups) > 1 else dict.fromkeys(FIRST)
    return [name(spec, keys) for spec in specs]
