"""Make the runs of one recipe. Called again, it continues; finished runs are not repeated."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlrsnet import __version__
from mlrsnet.card import versions
from mlrsnet.files.storage import ScheduleError, write_atomically
from mlrsnet.files.untrusted import read_json, reason
from mlrsnet_lab import checks, datasets, records
from mlrsnet_lab.devices import device_name, reproducible, resolve
from mlrsnet_lab.executors import Crew, Place, Work
from mlrsnet_lab.jobs import Job, best, choose, choose_cells, in_order, with_options
from mlrsnet_lab.lock import RunInUseError
from mlrsnet_lab.loop import run
from mlrsnet_lab.recipes import RECIPES, SCALES, Recipe
from mlrsnet_lab.records import RECIPE, STUDY, Record
from mlrsnet_lab.settings import DEFAULT, Settings
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper
from mlrsnet_lab.watch import Planned, Relay, Replay, Watcher


def run_recipe(
    name: str,
    scale: str,
    out: Path,
    settings: Settings = DEFAULT,
    *,
    seeds: Sequence[int] | None = None,
    only: Sequence[str] = (),
    crew: Crew | None = None,
) -> list[Record]:
    """Make the runs of a recipe below `out`, or, without runs, what it computes: up to a minute on the CPU, every time.

    A run that fails on its own (out of memory, a missing package) is recorded as failed and the others continue. What concerns all
    of them, such as missing data or a full disk, is raised before anything is written.

    Args:
        name: of the recipe.
        scale: `smoke`, `short` or `paper`.
        out: a folder for all runs.
        settings: where, and who hears of it; one line before the first training says how many there are, and what is left out.
        seeds: the recipe's own if None.
        only: limits the runs to these rows and columns.
        crew: makes the runs, on its own device; this process if None. See `Executor`.
    """
    recipe = RECIPES[checks.one_of("recipe", name, RECIPES)]
    if recipe.measure is not None:
        compute(recipe, scale, out, seeds[0] if seeds else 0)
        return []
    chosen = tuple(recipe.seeds if seeds is None else seeds)
    jobs = choose(recipe, scale, chosen, only)
    if crew is None:
        resolve(settings.device)  # a wrong device, or missing data, leaves no files behind
    known = sorted({*chosen, *_seeds_below(out, recipe.name, scale)})
    absent = _absent(jobs, settings.root)
    jobs = [job for job in jobs if job.cell.column not in absent]
    several = crew is not None and crew.workers.size > 1
    labels = {"recipe": recipe.name, "scale": scale}
    campaign = Campaign(labels, out, in_order(jobs, recipe.seeds[0], shared_starts=several))
    missing = {cell.row: cell.missing for cell in choose_cells(recipe, scale, only) if cell.missing}
    settings.tell(_outlook(recipe, scale, len(campaign.numbers), missing | absent, settings, crew))
    write_atomically(out / RECIPE, records.dumps(recipe.sheet(scale, known, absent).to_dict(), indent=1).encode())
    campaign.run(settings) if crew is None else campaign.spread(settings, crew)
    found = [campaign.found.get(job.name) for job in jobs]
    return [record for record in found if record is not None]


def compute(recipe: Recipe, scale: str, out: Path, seed: int) -> None:
    """Write what a recipe computes, and on what."""
    checks.one_of("scale", scale, SCALES)
    earlier(out, STUDY, recipe.name, scale)
    start = time.perf_counter()
    assert recipe.measure is not None
    grids, figures = recipe.measure(scale, checks.whole_number("seed", seed, 0))
    made = {
        "versions": {"mlrsnet": __version__, **versions()},
        "device": "cpu",
        "commit": records.commit(),
        "seconds": time.perf_counter() - start,
    }
    found = replace(recipe.sheet(scale, [seed]), grids=grids, figures=figures, made=made)
    write_atomically(out / STUDY, records.dumps(found.to_dict(), indent=1).encode())


class Campaign:
    """Jobs, and what came of them so far.

    Args:
        labels: of all runs.
        out: a folder for them.
        jobs: by name, in order.
    """

    def __init__(self, labels: dict[str, str], out: Path, jobs: dict[str, Job]) -> None:
        self.labels, self.out, self.jobs, self.waiting = labels, out, jobs, list(jobs.values())
        self.found: dict[str, Record | None] = {}
        runs = [name for name, job in jobs.items() if not job.is_start]
        self.numbers = {name: f"{number}/{len(runs)} " for number, name in enumerate(runs, 1)}

    def run(self, settings: Settings) -> None:
        """Make all runs in this process, one after the other."""
        while (ready := self._next()) is not None:
            job, planned = ready
            self.found[job.name] = try_run(
                planned.spec, planned.folder, settings, self._labels(job), settings.watch(planned)
            )

    def spread(self, settings: Settings, crew: Crew) -> None:
        """Make each run in another process, as soon as it can begin and somebody is free."""
        running: dict[str, tuple[Job, Planned, Replay]] = {}
        remote = settings.elsewhere()

        def take() -> Work | None:
            if (ready := self._next()) is None:
                return None
            job, planned = ready
            running[job.name] = job, planned, Replay(lambda worker: settings.watch(_titled(planned, worker)))
            if job.is_start:
                return Work(job.name, make_start, (planned.spec, remote))
            words = planned.spec, planned.folder.absolute(), remote, self._labels(job)
            return Work(job.name, make_run, words, polite=True, again=(RunInUseError,))

        for done in crew.run(take, lambda work, event: running[work.name][2](event)):
            job, planned, _ = running.pop(done.work.name)
            record: Record | None = done.value
            if done.lost is not None:
                record = failed_record(planned.spec, self._labels(job), str(done.lost))
            # As it was asked for: a worker knows absolute paths only.
            self.found[job.name] = replace(record, folder=planned.folder) if record and not job.is_start else None

    def _next(self) -> tuple[Job, Planned] | None:
        """The first job that can begin, with the options that were chosen for it; None if there is none now."""
        for job in list(self.waiting):
            if not set(job.after) & self.jobs.keys() <= self.found.keys():
                continue
            self.waiting.remove(job)
            options = best([self.found[name] for name in job.tried], job.cell.choice)
            if options is not None:
                title = self.numbers.get(job.name, "") + job.title
                return job, Planned(with_options(job.spec, options), self.out / job.cell.folder(job.seed), title)
            self.found[job.name] = self._without_choice(job)
        return None

    def _without_choice(self, job: Job) -> Record:
        """A failed record, not written, for a job whose trials all failed."""
        choice = job.cell.choice
        assert choice is not None
        values = ", ".join(f"{value:g}" for value in choice.values)
        return failed_record(job.spec, self._labels(job), f"every trial failed: {choice.option} was one of {values}")

    def _labels(self, job: Job) -> dict[str, str]:
        return {**self.labels, "row": job.cell.row, "column": job.cell.column}


def _titled(planned: Planned, worker: str) -> Planned:
    return replace(planned, title=f"{planned.title} ({worker})") if worker else planned


def make_run(place: Place, spec: RunSpec, folder: Path, settings: Settings, labels: dict[str, str]) -> Record:
    """Make one run in another process."""
    return try_run(spec, folder, replace(settings, device=place.device), labels, [Relay(place.tell)])


def make_start(place: Place, spec: RunSpec, settings: Settings) -> None:
    """Make the weights that a run starts from, which are kept. If that fails, the run itself will say so."""
    device = resolve(place.device)
    with suppress(RuntimeError, ScheduleError, ImportError), reproducible(device, spec.deterministic):
        Stepper(spec, device, settings.root).close()


def try_run(
    spec: RunSpec, folder: Path, settings: Settings, labels: dict[str, str], watchers: Sequence[Watcher]
) -> Record:
    """Make one run. One that fails on its own is recorded as failed."""
    try:
        return run(spec, folder, settings, labels=labels, watchers=watchers)
    except (RuntimeError, ScheduleError, ImportError) as error:
        if records.holds(folder) and (left := records.read(folder)).status == records.FAILED:
            return left
        return failed_record(spec, labels, f"{type(error).__name__}: {error}", folder)


def failed_record(spec: RunSpec, labels: dict[str, str], reason: str, folder: Path | None = None) -> Record:
    """A record, not written, of a run that could not be made."""
    data = {"status": records.FAILED, "spec": spec.to_dict(), "labels": labels, "error": reason}
    return Record({"format": records.FORMAT, **data}, folder=folder)


def _outlook(
    recipe: Recipe, scale: str, total: int, left_out: Mapping[str, str], settings: Settings, crew: Crew | None
) -> str:
    here = resolve(settings.device if crew is None else "cpu")
    where, device = (device_name(here), here.type) if crew is None else (crew.workers.describe(), crew.workers.device)
    told = f"{recipe.name}, scale {scale}: {total} trainings on {where}"
    if device == "cpu" and scale not in recipe.for_cpu:
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


def earlier(out: Path, file: str, name: str, scale: str) -> dict[str, Any]:
    """What an earlier call left in the folder, empty if none did. Refuses another recipe's folder."""
    path = out / file
    if not path.is_file():
        return {}
    try:
        found = dict(read_json(path))
        there = found["name"], found["scale"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({reason(error)}): delete it, or use another folder") from None
    if there != (name, scale):
        raise ValueError(f"{out} holds {there[0]} at scale {there[1]}: use another folder")
    return found


def _seeds_below(out: Path, name: str, scale: str) -> set[int]:
    """Seeds of the runs that earlier calls made there."""
    try:
        return {int(seed) for seed in earlier(out, RECIPE, name, scale).get("seeds", ())}
    except TypeError as error:
        raise ValueError(f"{out / RECIPE} cannot be read ({error}): delete it, or use another folder") from None
