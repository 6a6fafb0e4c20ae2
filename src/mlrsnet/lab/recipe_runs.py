"""Make the runs of one recipe, or compute one study. Called again, it continues; finished runs are not repeated."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mlrsnet import __version__, _check
from mlrsnet._files.storage import ScheduleError, write_atomically
from mlrsnet.card import versions
from mlrsnet.lab import datasets, records
from mlrsnet.lab.devices import device_name, resolve
from mlrsnet.lab.jobs import Job, choose, choose_cells, numbered, with_options
from mlrsnet.lab.loop import run
from mlrsnet.lab.recipes import RECIPES, SCALES, STUDIES, Choice, Recipe
from mlrsnet.lab.records import RECIPE, STUDY, Record
from mlrsnet.lab.several import Planned, Watch
from mlrsnet.lab.spec import RunSpec


def run_recipe(
    name: str,
    scale: str,
    out: Path,
    *,
    seeds: Sequence[int] | None = None,
    only: Sequence[str] = (),
    device: str = "auto",
    root: Path | None = None,
    watch: Watch = lambda one: (),
    tell: Callable[[str], object] = lambda line: None,
) -> list[Record]:
    """Make the runs of a recipe below `out`.

    A run that fails on its own (out of memory, a missing package) is recorded as failed and the others continue. What concerns all
    of them, such as missing data or a full disk, is raised before anything is written.

    Args:
        name: of the recipe.
        scale: `smoke`, `short` or `paper`.
        out: a folder for all runs.
        seeds: the recipe's own if None.
        only: limits the runs to these rows and columns.
        device, root: see `run`.
        watch: returns the watchers of a run.
        tell: is called with one line before the first training: how many there are, where, and what is left out.
    """
    recipe = RECIPES[_check.one_of("recipe", name, RECIPES)]
    chosen = tuple(recipe.seeds if seeds is None else seeds)
    jobs = choose(recipe, scale, chosen, only)
    place = resolve(device)  # a wrong device, or missing data, leaves no files behind
    known = sorted({*chosen, *_seeds_below(out, recipe.name, scale)})
    absent = _absent(jobs, root)
    jobs = numbered([(job.cell, job.seed) for job in jobs if job.cell.column not in absent])
    missing = {cell.row: cell.missing for cell in choose_cells(recipe, scale, only) if cell.missing}
    tell(_outlook(recipe, scale, jobs, missing | absent, place))
    write_atomically(out / RECIPE, records.dumps(recipe.describe(scale, known, absent), indent=1).encode())

    def make(job: Job, options: dict[str, Any]) -> Record:
        labels = {"recipe": recipe.name, "scale": scale, "row": job.cell.row, "column": job.cell.column}
        planned = Planned(with_options(job.spec, options), out / job.cell.folder(job.seed), job.title)
        try:
            return run(planned.spec, planned.folder, device=device, root=root, labels=labels, watchers=watch(planned))
        except (RuntimeError, ScheduleError, ImportError) as error:
            return _failed(planned.spec, labels, planned.folder, error)

    return _in_turn(jobs, recipe.seeds[0], make)


def _in_turn(jobs: Sequence[Job], trial_seed: int, make: Callable[[Job, dict[str, Any]], Record]) -> list[Record]:
    """Every job; before the first of a row and column, the trials that choose its setting, always with the same seed."""
    found, settings = [], dict[tuple[str, str], dict[str, Any] | None]()
    for job in jobs:
        cell = job.cell.row, job.cell.column
        if cell not in settings:
            settings[cell] = _best([make(trial, {}) for trial in job.trials(trial_seed)], job.cell.choice)
        options = settings[cell]
        found.append(_without_choice(job) if options is None else make(job, options))
    return found


def run_study(name: str, scale: str, out: Path, *, seed: int = 0) -> Path:
    """Compute a study below `out` and return its file. It takes up to a minute on the CPU, and is computed every time."""
    chosen = STUDIES[_check.one_of("study", name, STUDIES)]
    _check.one_of("scale", scale, SCALES)
    _earlier(out, STUDY, name, scale)
    start = time.perf_counter()
    found = chosen.findings(scale, _check.whole_number("seed", seed, 0))
    made = {
        "versions": {"mlrsnet": __version__, **versions()},
        "device": "cpu",
        "commit": records.commit(),
        "seconds": time.perf_counter() - start,
    }
    write_atomically(out / STUDY, records.dumps(found | made, indent=1).encode())
    return out / STUDY


def _outlook(recipe: Recipe, scale: str, jobs: Sequence[Job], left_out: Mapping[str, str], device: torch.device) -> str:
    told = f"{recipe.name}, scale {scale}: {jobs[-1].total if jobs else 0} trainings on {device_name(device)}"
    if device.type == "cpu" and scale not in recipe.for_cpu:
        told += ", though this scale is for a GPU (`--scale smoke` is for a CPU)"
    return told + "".join(f"; left out: {name} ({reason})" for name, reason in left_out.items())


def _absent(jobs: Sequence[Job], root: Path | None) -> dict[str, str]:
    """Optional columns without data, and why; raise if the data of another column is missing."""
    absent = {}
    for job in {(job.cell.column, str(job.cell.spec)): job for job in jobs}.values():
        spec = job.cell.spec
        assert spec is not None
        try:
            for task, options in spec.tasks:
                datasets.find(task, root=root, **options)
        except FileNotFoundError as error:
            if not job.cell.optional:
                raise
            absent[job.cell.column] = str(error)
    return absent


def _best(trials: Sequence[Record], choice: Choice | None) -> dict[str, float] | None:
    """The value with the best validation result, as an option; None if all trials failed."""
    if choice is None:
        return {}

    def rank(record: Record) -> float:
        value = record.result.get("val_metric") if record.status == records.FINISHED and record.result else None
        if value is None:
            return math.inf
        return -float(value) if record.data["metric"]["better"] == "higher" else float(value)

    ranks = [rank(record) for record in trials]
    if min(ranks) == math.inf:
        return None
    return {choice.option: choice.values[ranks.index(min(ranks))]}


def _without_choice(job: Job) -> Record:
    """A failed record, not written, for a job whose trials all failed."""
    choice, spec = job.cell.choice, job.spec
    assert choice is not None
    values = ", ".join(f"{value:g}" for value in choice.values)
    labels = {"row": job.cell.row, "column": job.cell.column}
    return _failed_record(spec, labels, f"every trial failed: {choice.option} was one of {values}")


def _failed(spec: RunSpec, labels: dict[str, str], folder: Path, error: Exception) -> Record:
    """The record that a failed run left. A run that failed before it wrote one gets one here."""
    if records.holds(folder):
        left = records.read(folder)
        if left.status == records.FAILED:
            return left
    return _failed_record(spec, labels, f"{type(error).__name__}: {error}", folder)


def _failed_record(spec: RunSpec, labels: dict[str, str], reason: str, folder: Path | None = None) -> Record:
    data = {"status": records.FAILED, "spec": spec.to_dict(), "labels": labels, "error": reason}
    return Record({"format": records.FORMAT, **data}, folder=folder)


def _earlier(out: Path, file: str, name: str, scale: str) -> dict[str, Any]:
    """What an earlier call left in the folder, empty if none did. Refuses another recipe's folder."""
    path = out / file
    if not path.is_file():
        return {}
    try:
        earlier = dict(records.loads(path.read_text()))
        there = earlier["name"], earlier["scale"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): delete it, or use another folder") from None
    if there != (name, scale):
        raise ValueError(f"{out} holds {there[0]} at scale {there[1]}: use another folder")
    return earlier


def _seeds_below(out: Path, name: str, scale: str) -> set[int]:
    """Seeds of the runs that earlier calls made there."""
    try:
        return {int(seed) for seed in _earlier(out, RECIPE, name, scale).get("seeds", ())}
    except TypeError as error:
        raise ValueError(f"{out / RECIPE} cannot be read ({error}): delete it, or use another folder") from None
