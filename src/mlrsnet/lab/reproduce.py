"""Run a recipe: every cell and seed that is asked for, each in its own folder, finished ones not again."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from mlrsnet import __version__, _check
from mlrsnet._files.storage import ScheduleError, write_atomically
from mlrsnet.card import versions
from mlrsnet.lab import records, tasks
from mlrsnet.lab.recipes import RECIPES, SCALES, STUDIES, Cell, Choice, Recipe
from mlrsnet.lab.records import RECIPE, STUDY, Record
from mlrsnet.lab.spec import RunSpec
from mlrsnet.lab.trainer import device_name, resolve, run
from mlrsnet.lab.watch import Watcher

ALL = "all"
"""Instead of a name: every recipe."""


@dataclass(frozen=True)
class Job:
    """One run of a recipe; `number` of `total` counts the trials of settings that are chosen first, too."""

    cell: Cell
    seed: int
    number: int
    total: int

    @property
    def title(self) -> str:
        """For progress bars."""
        return f"{self.number}/{self.total} {self.cell.column} {self.cell.row} seed {self.seed}"

    def trials(self, seed: int) -> "list[Job]":
        """Short trainings to choose a setting by, as runs of a table of their own."""
        choice, spec, cell = self.cell.choice, self.cell.spec, self.cell
        if choice is None or spec is None:
            return []
        column = f"{cell.column}: {choice.option} of {cell.row}, {records.CHOSEN}"
        short = replace(spec, epochs=min(spec.epochs, choice.epochs))
        trials = [
            Cell(f"{cell.row}, {choice.option} {value:g}", column, _with(short, {choice.option: value}))
            for value in choice.values
        ]
        first = self.number - len(trials)
        return [replace(self, cell=trial, seed=seed, number=first + index) for index, trial in enumerate(trials)]

    @property
    def spec(self) -> RunSpec:
        """With its seed, and the place of the schedule that another run leaves, seen from this run's folder."""
        spec, cell = self.cell.spec, self.cell
        assert spec is not None
        if cell.learned_in is None:
            return replace(spec, seed=self.seed)
        source = Cell(*cell.learned_in, None).folder(self.seed) / records.SCHEDULE
        place = Path(os.path.relpath(source, cell.folder(self.seed))).as_posix()
        return _with(replace(spec, seed=self.seed), {"schedule": place})


def _with(spec: RunSpec, options: dict[str, Any]) -> RunSpec:
    return replace(spec, schedule_options=spec.schedule_options | options)


def choose(recipe: Recipe, scale: str, seeds: Sequence[int], only: Sequence[str]) -> list[Job]:
    """The runs to make; `only` names rows or columns."""
    _check.one_of("scale", scale, SCALES)
    for seed in seeds:
        _check.whole_number("each of seeds", seed, 0)
    chosen = _cells(recipe, scale, only)
    missing = [cell for cell in chosen if cell.missing]
    if len(missing) == len(chosen):
        raise ValueError(f"there is nothing to run for {', '.join(only)}: {missing[0].missing}")
    ready = sorted((cell for cell in chosen if cell.spec is not None), key=lambda cell: cell.learned_in is not None)
    return _numbered([(cell, seed) for seed in seeds for cell in ready])


def _cells(recipe: Recipe, scale: str, only: Sequence[str]) -> list[Cell]:
    cells = recipe.cells(scale)
    rows, columns = [list(dict.fromkeys(names)) for names in zip(*((c.row, c.column) for c in cells), strict=True)]
    for name in only:
        _check.one_of("only", name, (*rows, *columns))
    chosen = [
        cell
        for cell in cells
        if (not set(only) & set(rows) or cell.row in only) and (not set(only) & set(columns) or cell.column in only)
    ]
    wanted = {cell.learned_in for cell in chosen}
    return [cell for cell in cells if cell in chosen or (cell.row, cell.column) in wanted]


def _numbered(pairs: Sequence[tuple[Cell, int]]) -> list[Job]:
    """Trials come before the first run of their row and column."""
    places = [(cell.row, cell.column) for cell, _ in pairs]
    is_first = [place not in places[:index] for index, place in enumerate(places)]
    trials = [
        len(cell.choice.values) if cell.choice and new else 0 for (cell, _), new in zip(pairs, is_first, strict=True)
    ]
    ends = list(accumulate(1 + count for count in trials))
    return [Job(cell, seed, number, ends[-1]) for (cell, seed), number in zip(pairs, ends, strict=True)]


def reproduce(
    name: str,
    scale: str,
    out: Path,
    *,
    seeds: Sequence[int] | None = None,
    only: Sequence[str] = (),
    device: str = "auto",
    root: Path | None = None,
    watch: Callable[[Job], Sequence[Watcher]] = lambda job: (),
    tell: Callable[[str], object] = lambda outlook: None,
) -> list[Record]:
    """Make the runs of a recipe below `out`; called again it goes on where it was stopped.

    `tell` hears, before the first training, how many there are, on what, and what is left out.

    A run that fails on its own (out of memory, say, or for want of a package) is recorded as failed and the others go on; what
    concerns all of them, such as missing data or a full disk, ends it before anything is written.
    """
    recipe = RECIPES[_check.one_of("recipe", name, RECIPES)]
    chosen = tuple(recipe.seeds if seeds is None else seeds)
    jobs = choose(recipe, scale, chosen, only)
    place = resolve(device)  # a word that means no device leaves nothing behind, nor does data that is not there
    known = sorted({*chosen, *_seeds_below(out, recipe.name, scale)})
    absent = _absent(jobs, root)
    jobs = _numbered([(job.cell, job.seed) for job in jobs if job.cell.column not in absent])
    missing = {cell.row: cell.missing for cell in _cells(recipe, scale, only) if cell.missing}
    tell(_outlook(recipe, scale, jobs, missing | absent, place))
    write_atomically(out / RECIPE, records.dumps(recipe.describe(scale, known, absent), indent=1).encode())

    def make(job: Job, options: dict[str, Any]) -> Record:
        labels = {"recipe": recipe.name, "scale": scale, "row": job.cell.row, "column": job.cell.column}
        spec, folder = _with(job.spec, options), out / job.cell.folder(job.seed)
        try:
            return run(spec, folder, device=device, root=root, labels=labels, watchers=watch(job))
        except (RuntimeError, ScheduleError, ImportError) as error:
            return _failed(spec, labels, folder, error)

    found, settings = [], dict[tuple[str, str], dict[str, Any] | None]()
    for job in jobs:
        cell = job.cell.row, job.cell.column
        if cell not in settings:  # chosen with the recipe's first seed, whichever are asked for now
            trials = [make(trial, {}) for trial in job.trials(recipe.seeds[0])]
            settings[cell] = _best(trials, job.cell.choice)
        found.append(_without_choice(job) if settings[cell] is None else make(job, settings[cell] or {}))
    return found


def _outlook(recipe: Recipe, scale: str, jobs: Sequence[Job], left_out: Mapping[str, str], device: torch.device) -> str:
    """In one line."""
    told = f"{recipe.name}, scale {scale}: {jobs[-1].total if jobs else 0} trainings on {device_name(device)}"
    if device.type == "cpu" and scale not in recipe.for_cpu:
        told += ", though this scale is for a GPU (`--scale smoke` is for a CPU)"
    return told + "".join(f"; left out: {name} ({reason})" for name, reason in left_out.items())


def _absent(jobs: Sequence[Job], root: Path | None) -> dict[str, str]:
    """Optional columns whose data is not there, and why; the data of the others must be."""
    absent = {}
    for job in {(job.cell.column, str(job.cell.spec)): job for job in jobs}.values():
        spec = job.cell.spec
        assert spec is not None
        try:
            tasks.find(spec.task, root=root, **spec.task_options)
        except FileNotFoundError as error:
            if not job.cell.optional:
                raise
            absent[job.cell.column] = str(error)
    return absent


def _without_choice(job: Job) -> Record:
    """Every value of a grid has failed: there is nothing to train with, and nothing is written."""
    choice, spec = job.cell.choice, job.spec
    assert choice is not None
    reason = f"no {choice.option} of {', '.join(f'{value:g}' for value in choice.values)} came to the end of its trial"
    labels = {"row": job.cell.row, "column": job.cell.column}
    return Record(
        {"format": records.FORMAT, "status": records.FAILED, "spec": spec.to_dict(), "labels": labels, "error": reason}
    )


def study(name: str, scale: str, out: Path, *, seed: int = 0) -> Path:
    """Compute a study below `out`: seconds to a minute, on the CPU, always anew; its file is returned."""
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


def _best(trials: Sequence[Record], choice: Choice | None) -> dict[str, float] | None:
    """The value whose trial had the best validation result; None where all have gone astray."""
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


def _failed(spec: RunSpec, labels: dict[str, str], folder: Path, error: Exception) -> Record:
    """The record that a run left; one that failed before it had any, such as for want of memory, is made up here."""
    if records.holds(folder):
        left = records.read(folder)
        if left.status == records.FAILED:
            return left
    reason = f"{type(error).__name__}: {error}"
    data = {"status": records.FAILED, "spec": spec.to_dict(), "labels": labels, "error": reason}
    return Record({"format": records.FORMAT, **data}, folder=folder)


def _earlier(out: Path, file: str, name: str, scale: str) -> dict[str, Any]:
    """What an earlier call left there, empty where none did; another recipe's folder is refused."""
    path = out / file
    if not path.is_file():
        return {}
    try:
        earlier = dict(records.loads(path.read_text()))
        there = earlier["name"], earlier["scale"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): delete it, or use another --out") from None
    if there != (name, scale):
        raise ValueError(f"{out} holds {there[0]} at scale {there[1]}: use another --out")
    return earlier


def _seeds_below(out: Path, name: str, scale: str) -> set[int]:
    """Of runs that an earlier call made there."""
    try:
        return {int(seed) for seed in _earlier(out, RECIPE, name, scale).get("seeds", ())}
    except TypeError as error:
        raise ValueError(f"{out / RECIPE} cannot be read ({error}): delete it, or use another --out") from None
