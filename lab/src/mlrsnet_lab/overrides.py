"""A RunSpec from a file, with single fields and options changed."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlrsnet.files import hub, names
from mlrsnet_lab import checks, datasets, methods
from mlrsnet_lab.spec import RunSpec

NAMED = ("task", "model", "optimizer", "schedule")
"""Fields with options of their own."""

Option = tuple[str, str, Any]
"""Field, name and value: `("schedule", "warmup", 0.05)`."""


def make_spec(
    path: Path | None = None, fields: Mapping[str, Any] | None = None, options: Sequence[Option] = ()
) -> RunSpec:
    """The spec in a file, or the defaults, with these fields and options on top.

    A learned schedule may be named like a method: `schedule="universal"` means the method `learned` with the option
    `schedule="universal"`.

    >>> make_spec(fields={"schedule": "universal"}, options=[("schedule", "scale", 0.5)]).schedule_options
    {'schedule': 'universal', 'scale': 0.5}
    """
    values = RunSpec.from_file(path).to_dict() if path else {}
    fields, options = _with_learned(fields or {}, options)
    for name in NAMED:
        if fields.get(name, values.get(name)) != values.get(name):
            values.pop(f"{name}_options", None)  # they belong to the name that was replaced
    values |= fields
    task = str(values.get("task", ""))
    if task.endswith(".npz") or (task not in datasets.KNOWN and task and Path(task).is_dir()):
        values["task"] = os.path.abspath(task)  # a run may be resumed from another folder
    for field, name, value in options:
        values[f"{field}_options"] = {**values.get(f"{field}_options", {}), name: value}
    spec = RunSpec.from_dict(values)
    if "lr" in fields and not methods.uses_lr(spec.schedule):
        checks.warn(_no_effect(spec))
    return spec


def _no_effect(spec: RunSpec) -> str:
    """Why an LR changes nothing, and what would."""
    name = spec.schedule_options.get("schedule", spec.schedule)
    scale = ", or multiply its LRs by an option: schedule.scale=2" if "scale" in methods.defaults(spec.schedule) else ""
    return f"lr has no effect under schedule {name!r}, which finds its own: leave it out{scale}"


def _with_learned(fields: Mapping[str, Any], options: Sequence[Option]) -> tuple[Mapping[str, Any], Sequence[Option]]:
    name = fields.get("schedule")
    if name is None or name in methods.SCHEDULES:
        return fields, options
    known = names.list_schedules()
    if name not in known and not name.startswith(hub.PREFIX) and not name.endswith(names.SUFFIX):
        every = ", ".join([*methods.SCHEDULES, *known])
        raise ValueError(
            f"schedule must be one of {every}, the path of a {names.SUFFIX} file or hf://owner/name; got {name!r}"
        )
    return {**fields, "schedule": "learned"}, [("schedule", "schedule", name), *options]
