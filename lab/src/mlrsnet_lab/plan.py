"""Which run of a recipe can begin: after the trials that choose its setting, and after the run that learns its schedule."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlrsnet_lab import records
from mlrsnet_lab.jobs import Job
from mlrsnet_lab.recipes import Cell, Choice
from mlrsnet_lab.records import Record
from mlrsnet_lab.spec import RunSpec

START = "start "
"""Begins the name of a step that makes weights to start from."""


@dataclass(frozen=True)
class Step:
    """A run to make, or, if `is_start`, the weights that several runs start from.

    trials: names of the steps whose results choose a setting. after: names of all steps that come first.
    """

    name: str
    job: Job
    trials: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    is_start: bool = False


class Plan:
    """The steps of a recipe's runs, in the order of the jobs, and what is known of them so far.

    Trials come before the first run of their row and column, always with the same seed.

    Args:
        jobs: of the recipe.
        trial_seed: of the trials.
        shared_starts: make weights that several runs start from in a step of their own, for runs that are made at once.
    """

    def __init__(self, jobs: Sequence[Job], trial_seed: int, *, shared_starts: bool = False) -> None:
        steps: dict[str, Step] = {}
        trials = dict[tuple[str, str], tuple[str, ...]]()
        for job in jobs:
            place = job.cell.row, job.cell.column
            if place not in trials:
                tried = [_step(trial, shared_starts) for trial in job.trials(trial_seed)]
                trials[place] = tuple(step.name for step in tried)
                _add(steps, tried)
            _add(steps, [_step(job, shared_starts, trials[place])])
        self.waiting, self.names = list(steps.values()), set(steps)
        self.found: dict[str, Record | None] = {}

    def take(self) -> tuple[Step, dict[str, Any]] | None:
        """The first step that can begin, with the options that were chosen for it; None if there is none now."""
        for step in list(self.waiting):
            if not (set(step.after) & self.names) <= self.found.keys():
                continue
            self.waiting.remove(step)
            options = best([self.found[name] for name in step.trials], step.job.cell.choice)
            if options is not None:
                return step, options
            self.done(step, without_choice(step.job))
        return None

    def done(self, step: Step, record: Record | None) -> None:
        """A step has ended."""
        self.found[step.name] = record

    def records(self, jobs: Sequence[Job]) -> list[Record]:
        """Of these jobs, in their order."""
        found = [self.found.get(_name(job.cell, job.seed)) for job in jobs]
        return [record for record in found if record is not None]


def _step(job: Job, shared_starts: bool, trials: tuple[str, ...] = ()) -> Step:
    cell, after = job.cell, list(trials)
    if cell.learned_in is not None:
        after.append(_name(Cell(*cell.learned_in, None), job.seed))
    if shared_starts and cell.spec is not None and cell.spec.start:
        after.append(START + json.dumps(cell.spec.start, sort_keys=True))
    return Step(_name(cell, job.seed), job, trials, tuple(after))


def _name(cell: Cell, seed: int) -> str:
    return f"{cell.column}: {cell.row}, seed {seed}"


def _add(steps: dict[str, Step], new: Sequence[Step]) -> None:
    """Add steps; before the first one that needs them, the weights to start from."""
    for step in new:
        for name in step.after:
            if name.startswith(START):
                steps.setdefault(name, Step(name, step.job, is_start=True))
        steps[step.name] = step


def best(trials: Sequence[Record | None], choice: Choice | None) -> dict[str, float] | None:
    """The value with the best validation result, as an option; None if all trials failed."""
    if choice is None or not trials:
        return {}

    def rank(record: Record | None) -> float:
        if record is None or record.status != records.FINISHED or record.result.get("val_metric") is None:
            return math.inf
        value = record.result["val_metric"]
        return -float(value) if record.data["metric"]["better"] == "higher" else float(value)

    ranks = [rank(record) for record in trials]
    if min(ranks) == math.inf:
        return None
    return {choice.option: choice.values[ranks.index(min(ranks))]}


def without_choice(job: Job) -> Record:
    """A failed record, not written, for a job whose trials all failed."""
    choice = job.cell.choice
    assert choice is not None
    values = ", ".join(f"{value:g}" for value in choice.values)
    labels = {"row": job.cell.row, "column": job.cell.column}
    return failed_record(job.spec, labels, f"every trial failed: {choice.option} was one of {values}")


def failed_record(spec: RunSpec, labels: dict[str, str], reason: str, folder: Path | None = None) -> Record:
    """A record, not written, of a run that could not be made."""
    data = {"status": records.FAILED, "spec": spec.to_dict(), "labels": labels, "error": reason}
    return Record({"format": records.FORMAT, **data}, folder=folder)
