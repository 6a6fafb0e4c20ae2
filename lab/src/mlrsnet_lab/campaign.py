"""Make the runs of recipes. Called again, it continues; finished runs are not repeated, and equal ones are made once."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from mlrsnet import __version__
from mlrsnet.card import versions
from mlrsnet.files.storage import ScheduleError, write_atomically
from mlrsnet.files.untrusted import LARGEST_DOCUMENT, read_bytes, read_json, reason
from mlrsnet.files.writing import copy_of
from mlrsnet_lab import checkpoint, checks, costs, datasets, inputs, records
from mlrsnet_lab.devices import device_name, reproducible, resolve
from mlrsnet_lab.executors import Crew, Place, Work
from mlrsnet_lab.jobs import Job, best, choose, choose_cells, in_order, owners, with_options
from mlrsnet_lab.lock import RunInUseError, held
from mlrsnet_lab.loop import run
from mlrsnet_lab.recipes import RECIPES, SCALES, Recipe
from mlrsnet_lab.records import RECIPE, STUDY, Record
from mlrsnet_lab.run_record import earlier_run
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
        scale: `smoke`, `cpu`, `short` or `paper`.
        out: a folder for all runs.
        settings: where, and who hears of it; one line before the first training says how many there are, and what is left out.
        seeds: the recipe's own if None.
        only: limits the runs to these rows and columns.
        crew: makes the runs, on its own device; this process if None. See `Executor`.
    """
    campaign = begin([plan(name, scale, out, settings, seeds=seeds, only=only, crew=crew)], settings, crew)
    campaign.make(settings, crew)
    return campaign.records


@dataclass(frozen=True)
class Part:
    """A recipe that was asked for, or some of it: its folder, seeds and jobs.

    absent: columns whose data are missing, and why. missing: rows that cannot be run, and why.
    """

    recipe: Recipe
    scale: str
    folder: Path
    seeds: Sequence[int]
    jobs: Sequence[Job] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


def plan(
    name: str,
    scale: str,
    folder: Path,
    settings: Settings = DEFAULT,
    *,
    seeds: Sequence[int] | None = None,
    only: Sequence[str] = (),
    crew: Crew | None = None,
) -> Part:
    """What there is to make of a recipe; see `run_recipe`. Writes nothing, and raises if data are missing."""
    recipe = RECIPES[checks.one_of("recipe", name, RECIPES)]
    checks.one_of("scale", scale, SCALES)
    checks.one_of(f"scale of {name}", scale, recipe.scales)
    if recipe.measure is not None:
        earlier(folder, STUDY, name, scale)
        return Part(recipe, scale, folder, [checks.whole_number("seed", seeds[0] if seeds else 0, 0)])
    jobs = choose(recipe, scale, seeds, only, folder)
    if crew is None:
        resolve(settings.device)  # a wrong device, or missing data, leaves no files behind
    known = sorted({*(recipe.seeds if seeds is None else seeds), *_seeds_below(folder, name, scale)})
    absent = _absent(jobs, settings.root)
    missing = {cell.row: cell.missing for cell in choose_cells(recipe, scale, only) if cell.missing}
    jobs = [job for job in jobs if job.cell.column not in absent]
    return Part(recipe, scale, folder, known, jobs, absent, missing)


def begin(parts: Sequence[Part], settings: Settings = DEFAULT, crew: Crew | None = None) -> "Campaign":
    """Write what is planned, and compute what needs no training; the campaign makes the runs. Equal ones are made once."""
    several = crew is not None and crew.workers.size > 1
    jobs: dict[str, Job] = {}
    for part in parts:
        jobs |= in_order(part.jobs, part.recipe.seeds[0], shared_starts=several)
    campaign = Campaign(jobs, list(dict.fromkeys(job.name for part in parts for job in part.jobs)))
    whole = _whole(parts)
    _tell_outlook(whole, campaign, settings, crew)
    for part in whole:
        if part.recipe.measure is not None:
            compute(part)
            continue
        sheet = part.recipe.sheet(part.scale, part.seeds, part.absent).to_dict()
        write_atomically(part.folder / RECIPE, records.dumps(sheet, indent=1).encode())
    return campaign


def _whole(parts: Sequence[Part]) -> list[Part]:
    """Parts of the same folder as one."""
    found: dict[Path, Part] = {}
    for part in parts:
        there = found.setdefault(part.folder, part)
        seeds = sorted({*there.seeds, *part.seeds})
        absent, missing = {**there.absent, **part.absent}, {**there.missing, **part.missing}
        found[part.folder] = replace(there, seeds=seeds, absent=absent, missing=missing)
    return list(found.values())


def compute(part: Part) -> None:
    """Write what a recipe computes, and on what; not again if this commit has computed it."""
    there, now = earlier(part.folder, STUDY, part.recipe.name, part.scale), records.commit()
    if now and not now.endswith("-changed") and (there.get("seed"), there.get("commit")) == (part.seeds[0], now):
        return
    start = time.perf_counter()
    assert part.recipe.measure is not None
    grids, figures = part.recipe.measure(part.scale, part.seeds[0])
    made = {
        "versions": {"mlrsnet": __version__, **versions()},
        "device": "cpu",
        "commit": now,
        "seconds": time.perf_counter() - start,
    }
    found = replace(part.recipe.sheet(part.scale, part.seeds), grids=grids, figures=figures, made=made)
    write_atomically(part.folder / STUDY, records.dumps(found.to_dict(), indent=1).encode())


class Campaign:
    """Jobs, and what came of them so far.

    Args:
        jobs: by name, in order.
        asked: names of those whose records are returned, without trials of settings.
    """

    def __init__(self, jobs: dict[str, Job], asked: Sequence[str] = ()) -> None:
        self.jobs, self.waiting, self.owners, self.asked = jobs, list(jobs.values()), owners(jobs), asked
        self.found: dict[str, Record | None] = {}
        self.distinct = [name for name, job in jobs.items() if not job.is_start and self.owners[name] == name]
        self.numbers = {name: f"{number}/{len(self.distinct)} " for number, name in enumerate(self.distinct, 1)}

    @property
    def count(self) -> int:
        """How many runs there are, equal ones too."""
        return sum(not job.is_start for job in self.jobs.values())

    @property
    def records(self) -> list[Record]:
        """Of the runs that were asked for, as far as they are made."""
        return [record for name in self.asked if (record := self.found.get(name)) is not None]

    @property
    def unfinished(self) -> bool:
        """Whether there is something left to make."""
        return self.found.keys() != self.jobs.keys()

    def make(self, settings: Settings, crew: Crew | None = None, stop: Callable[[], bool] = lambda: False) -> None:
        """Make all runs, in this process if there is no crew. `stop` is asked before each of them."""
        if crew is None:
            self.run(settings, stop)
        else:
            self.spread(settings, crew, stop)

    def run(self, settings: Settings, stop: Callable[[], bool]) -> None:
        """Make all runs in this process, one after the other."""
        while not stop() and (ready := self._next()) is not None:
            job, planned = ready
            watchers = settings.watch(planned)
            self.found[job.name] = try_run(planned.spec, planned.folder, settings, job.labels, watchers)
            self._tell(settings)

    def spread(self, settings: Settings, crew: Crew, stop: Callable[[], bool]) -> None:
        """Make each run in another process, as soon as it can begin and somebody is free."""
        running: dict[str, tuple[Job, Planned, Replay]] = {}
        remote = settings.elsewhere()

        def take() -> Work | None:
            if stop() or (ready := self._next()) is None:
                return None
            job, planned = ready
            running[job.name] = job, planned, Replay(lambda worker: settings.watch(_titled(planned, worker)))
            if job.is_start:
                return Work(job.name, make_start, (planned.spec, remote))
            words = planned.spec, planned.folder.absolute(), remote, job.labels
            return Work(job.name, make_run, words, polite=True, again=(RunInUseError,))

        for done in crew.run(take, lambda work, event: running[work.name][2](event)):
            job, planned, _ = running.pop(done.work.name)
            record: Record | None = done.value
            if done.lost is not None:
                record = failed_record(planned.spec, job.labels, str(done.lost))
            # As it was asked for: a worker knows absolute paths only.
            self.found[job.name] = replace(record, folder=planned.folder) if record and not job.is_start else None
            self._tell(settings)

    def _tell(self, settings: Settings) -> None:
        settings.overall(sum(name in self.found for name in self.distinct), len(self.distinct))

    def _next(self) -> tuple[Job, Planned] | None:
        """The first job that can begin, with the options that were chosen for it; None if there is none now."""
        for job in self._ready():
            options = best([self.found[name] for name in job.tried], job.cell.choice)
            if options is None:
                self.found[job.name] = self._without_choice(job)
                continue
            planned = Planned(with_options(job.spec, options), job.folder, self.numbers.get(job.name, "") + job.title)
            owner = self.owners[job.name]
            if owner == job.name or _reads_other_files(self.found[owner], planned):
                return job, planned
            try:
                self.found[job.name] = copied(self.found[owner], planned, job.labels)
            except ValueError as error:  # another process is there, or another run
                self.found[job.name] = failed_record(planned.spec, job.labels, str(error), planned.folder)
        return None

    def _ready(self) -> Iterator[Job]:
        """Jobs that wait for nothing any more. A copy may be what an earlier one waits for, so that it begins again."""
        again = True
        while again:
            again = False
            for job in list(self.waiting):
                owner = self.owners[job.name]
                first = [*job.after, *([owner] if owner != job.name else [])]
                if set(first) & self.jobs.keys() <= self.found.keys():
                    self.waiting.remove(job)
                    again = True
                    yield job

    def _without_choice(self, job: Job) -> Record:
        """A failed record, not written, for a job whose trials all failed."""
        choice = job.cell.choice
        assert choice is not None
        values = ", ".join(f"{value:g}" for value in choice.values)
        return failed_record(job.spec, job.labels, f"every trial failed: {choice.option} was one of {values}")


def _titled(planned: Planned, worker: str) -> Planned:
    return replace(planned, title=f"{planned.title} ({worker})") if worker else planned


def _reads_other_files(twin: Record | None, planned: Planned) -> bool:
    """Whether an equal run read another schedule than this one would: both were learned before anybody shared them."""
    return twin is not None and twin.ended and twin.entry("digests") != inputs.digests(planned.spec, planned.folder)


def copied(found: Record | None, planned: Planned, labels: dict[str, str]) -> Record:
    """An equal run, as a run of another place in the tables; `same_as` says where it was made."""
    if (there := earlier_run(planned.folder, planned.spec)) is not None and there.ended:
        return there
    if found is None or not found.ended or found.folder is None:
        why = "it was not made" if found is None else str(found.data.get("error", found.status))
        return failed_record(planned.spec, labels, f"the same run failed elsewhere: {why}")
    place = Path(os.path.relpath(found.folder, planned.folder)).as_posix()
    data = found.data | {"spec": planned.spec.to_dict(), "labels": labels, "same_as": place}
    made = replace(found, data=data, folder=planned.folder)
    with held(planned.folder):
        for name in (copy_of(Path(records.SCHEDULE)).name, records.SCHEDULE):
            if (found.folder / name).is_file():
                write_atomically(planned.folder / name, read_bytes(found.folder / name, LARGEST_DOCUMENT))
        records.write(made)
        checkpoint.remove(planned.folder)  # of a part that was made here
    return made


def make_run(place: Place, spec: RunSpec, folder: Path, settings: Settings, labels: dict[str, str]) -> Record:
    """Make one run in another process."""
    return try_run(spec, folder, replace(settings, device=place.device), labels, [Relay(place.tell)])


def make_start(place: Place, spec: RunSpec, settings: Settings) -> None:
    """Make the weights that a run starts from, which are kept. If that fails, the run itself will say so."""
    device = resolve(place.device)
    with (
        suppress(RuntimeError, ScheduleError, ImportError),
        reproducible(device, spec.deterministic, spec.precision == "fp32"),
    ):
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


def _tell_outlook(parts: Sequence[Part], campaign: Campaign, settings: Settings, crew: Crew | None) -> None:
    """A line per recipe, and one about all of them: how many runs, where, what is left out, how long it may take."""
    trained = [part for part in parts if part.recipe.measure is None]
    if not trained:
        return
    here = resolve(settings.device if crew is None else "cpu")
    where, device = (device_name(here), here.type) if crew is None else (crew.workers.describe(), crew.workers.device)
    for part in trained:
        count = sum(job.home.folder == part.folder and not job.is_start for job in campaign.jobs.values())
        told = f"{part.recipe.name}, scale {part.scale}: {count} trainings on {where}"
        if device == "cpu" and part.scale not in part.recipe.for_cpu:
            told += ", though this scale is for a GPU (`--scale smoke` and `--scale cpu` are for a CPU)"
        left_out = {**part.missing, **part.absent}
        settings.tell(told + "".join(f"; left out: {name} ({why})" for name, why in left_out.items()))
    processes = 1 if crew is None else crew.workers.size
    distinct = [campaign.jobs[name] for name in campaign.distinct]
    estimate = costs.estimate(distinct, processes) if device == "cpu" else ""
    if len(trained) > 1 or estimate:
        equal = campaign.count - len(distinct)
        settings.tell(f"{campaign.count:,} trainings, {equal:,} of them equal to others and made once{estimate}")


def _absent(jobs: Sequence[Job], root: Path | None) -> dict[str, str]:
    """Optional columns without data, and why; raise if the data of another column is missing."""
    absent, look = {}, cache(partial(_find, root=datasets.data_root(root)))
    for job in {(job.cell.column, str(job.cell.spec)): job for job in jobs}.values():
        spec = job.cell.spec
        assert spec is not None
        try:
            for task, options in spec.tasks:
                look(task, json.dumps(options))
        except FileNotFoundError as error:
            if not job.cell.optional:
                raise
            absent[job.cell.column] = str(error)
    return absent


def _find(task: str, options: str, root: Path) -> None:
    datasets.find(task, root=root, **json.loads(options))


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
