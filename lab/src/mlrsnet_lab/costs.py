"""How long the runs of scale cpu take, from seconds per epoch that were measured: one core, one thread."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mlrsnet.files.untrusted import read_json
from mlrsnet_lab import records
from mlrsnet_lab.jobs import Job
from mlrsnet_lab.spec import RunSpec

TABLE = Path(__file__).with_name("costs.json")
"""Seconds per epoch by `kind`, measured by benchmarks/costs.py."""

WITHOUT = ("corruption", "leaky", "overlap", "augment_val", "std", "init")
"""Options that change no cost."""

DIFFERENT = ("rtho", "direct")
"""Schedules whose steps cost several times as much as the others'."""


def kind(spec: dict[str, Any]) -> str:
    """What decides the cost of an epoch: data, network, batch, evaluations, rays, and whether a step differentiates twice."""
    parts = [
        spec["task"],
        spec["task_options"],
        spec["model"],
        spec["model_options"],
        spec["batch_size"],
        spec["eval_every"],
    ]
    own = [
        {key: value for key, value in part.items() if key not in WITHOUT} if isinstance(part, dict) else part
        for part in parts
    ]
    schedule = spec["schedule"] if spec["schedule"] in DIFFERENT else ""
    return json.dumps([*own, bool(spec["rays"]), schedule], sort_keys=True)


@cache
def table() -> dict[str, float]:
    """Seconds per epoch by kind."""
    return dict(read_json(TABLE)["seconds_per_epoch"]) if TABLE.is_file() else {}


def seconds(spec: RunSpec) -> float | None:
    """Of a run on one core; None if nothing like it was measured."""
    epoch = table().get(kind(spec.to_dict()))
    return None if epoch is None else epoch * spec.epochs


def estimate(jobs: Sequence[Job], processes: int) -> str:
    """In words, for the jobs that have not ended; empty if no cost is known."""
    left = [job for job in jobs if not records.has_ended(job.folder)]
    known = [found for job in left if job.cell.spec is not None and (found := seconds(job.cell.spec)) is not None]
    if not known:
        return ""
    hours = sum(known) / 3600
    unknown = f", and {len(left) - len(known):,} trainings of unknown length" if len(left) > len(known) else ""
    done = f", {len(jobs) - len(left):,} are done" if len(jobs) > len(left) else ""
    return f"{done}; about {hours:.1f} core-hours{unknown}: {hours / processes:.1f} hours here"
