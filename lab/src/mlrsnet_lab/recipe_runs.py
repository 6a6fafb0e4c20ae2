"""Make the runs of one recipe, or compute one study. Called again, it continues; finished runs are not repeated."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlrsnet import __version__
from mlrsnet.card import versions
from mlrsnet.files.storage import ScheduleError, write_atomically
from mlrsnet.files.untrusted import read_json, reason
from mlrsnet_lab import checks, datasets, records
from mlrsnet_lab.devices import reproducible, resolve
from mlrsnet_lab.executors import Crew, Here, Place, Work, Workers
from mlrsnet_lab.jobs import Job, choose, choose_cells, numbered, with_options
from mlrsnet_lab.lock import RunInUseError
from mlrsnet_lab.loop import run
from mlrsnet_lab.plan import Plan, Step, failed_record
from mlrsnet_lab.recipes import RECIPES, SCALES, STUDIES, Recipe
from mlrsnet_lab.records import RECIPE, STUDY, Record
from mlrsnet_lab.relay import Relay, Replay
from mlrsnet_lab.several import Planned, Watch
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper


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
    crew: Crew | None = None,
    checkpoint_seconds: float = 20.0,
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
        crew: makes the runs, on its own device; this process if None. See `Executor`.
        checkpoint_seconds: see `run`.
    """
    recipe = RECIPES[checks.one_of("recipe", name, RECIPES)]
    chosen = tuple(recipe.seeds if seeds is None else seeds)
    jobs = choose(recipe, scale, chosen, only)
    crew = Crew(Here(device)) if crew is None else crew  # a wrong device, or missing data, leaves no files behind
    known = sorted({*chosen, *_seeds_below(out, recipe.name, scale)})
    absent = _absent(jobs, root)
    jobs = numbered([(job.cell, job.seed) for job in jobs if job.cell.column not in absent])
    missing = {cell.row: cell.missing for cell in choose_cells(recipe, scale, only) if cell.missing}
    tell(_outlook(recipe, scale, jobs, missing | absent, crew.workers))
    write_atomically(out / RECIPE, records.dumps(recipe.describe(scale, known, absent), indent=1).encode())
    plan = Plan(jobs, recipe.seeds[0], shared_starts=crew.workers.size > 1)
    _Campaign(recipe.name, scale, out, root, checkpoint_seconds, plan, watch).run(crew)
    return plan.records(jobs)


class _Campaign:
    """The runs of a plan, given to a crew."""

    def __init__(
        self, recipe: str, scale: str, out: Path, root: Path | None, seconds: float, plan: Plan, watch: Watch
    ) -> None:
        self.recipe, self.scale, self.out, self.seconds = recipe, scale, out, seconds
        self.root, self.plan, self.watch = datasets.data_root(root), plan, watch
        self.steps: dict[str, tuple[Step, Planned]] = {}
        self.replays: dict[str, Replay] = {}

    def run(self, crew: Crew) -> None:
        """Make all runs, each as soon as it can begin and somebody is free."""
        for done in crew.run(self._take, lambda work, event: self.replays[work.name](event)):
            step, planned = self.steps.pop(done.work.name)
            record: Record | None = done.value
            if done.lost is not None:
                record = failed_record(planned.spec, self._labels(step.job), str(done.lost))
            if record is not None and not step.is_start:
                record = replace(
                    record, folder=planned.folder
                )  # as it was asked for: a worker knows absolute paths only
            self.plan.done(step, record)
            del self.replays[done.work.name]

    def _take(self) -> Work | None:
        taken = self.plan.take()
        if taken is None:
            return None
        step, options = taken
        job = step.job
        planned = Planned(with_options(job.spec, options), self.out / job.cell.folder(job.seed), job.title)
        self.steps[step.name] = step, planned
        self.replays[step.name] = Replay(lambda worker: self.watch(_titled(planned, worker)))
        if step.is_start:
            return Work(step.name, make_start, (planned.spec, self.root))
        arguments = (planned.spec, planned.folder.absolute(), self.root, self._labels(job), self.seconds)
        return Work(step.name, make_run, arguments, polite=True, again=(RunInUseError,))

    def _labels(self, job: Job) -> dict[str, str]:
        return {"recipe": self.recipe, "scale": self.scale, "row": job.cell.row, "column": job.cell.column}


def _titled(planned: Planned, worker: str) -> Planned:
    return replace(planned, title=f"{planned.title} ({worker})") if worker else planned


def make_run(
    place: Place, spec: RunSpec, folder: Path, root: Path, labels: dict[str, str], checkpoint_seconds: float
) -> Record:
    """Make one run, in whichever process. One that fails on its own is recorded as failed."""
    try:
        return run(
            spec,
            folder,
            device=place.device,
            root=root,
            labels=labels,
            watchers=[Relay(place.tell)],
            checkpoint_seconds=checkpoint_seconds,
        )
    except (RuntimeError, ScheduleError, ImportError) as error:
        return _failed(spec, labels, folder, error)


def make_start(place: Place, spec: RunSpec, root: Path) -> None:
    """Make the weights that a run starts from, which are kept. If that fails, the run itself will say so."""
    device = resolve(place.device)
    with suppress(RuntimeError, ScheduleError, ImportError), reproducible(device, spec.deterministic):
        Stepper(spec, device, root).close()


def run_study(name: str, scale: str, out: Path, *, seed: int = 0) -> Path:
    """Compute a study below `out` and return its file. It takes up to a minute on the CPU, and is computed every time."""
    chosen = STUDIES[checks.one_of("study", name, STUDIES)]
    checks.one_of("scale", scale, SCALES)
    _earlier(out, STUDY, name, scale)
    start = time.perf_counter()
    found = chosen.findings(scale, checks.whole_number("seed", seed, 0))
    made = {
        "versions": {"mlrsnet": __version__, **versions()},
        "device": "cpu",
        "commit": records.commit(),
        "seconds": time.perf_counter() - start,
    }
    write_atomically(out / STUDY, records.dumps(found | made, indent=1).encode())
    return out / STUDY


def _outlook(recipe: Recipe, scale: str, jobs: Sequence[Job], left_out: Mapping[str, str], workers: Workers) -> str:
    told = f"{recipe.name}, scale {scale}: {jobs[-1].total if jobs else 0} trainings on {workers.describe()}"
    if workers.device == "cpu" and scale not in recipe.for_cpu:
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


def _failed(spec: RunSpec, labels: dict[str, str], folder: Path, error: Exception) -> Record:
    """The record that a failed run left. A run that failed before it wrote one gets one here."""
    if records.holds(folder):
        left = records.read(folder)
        if left.status == records.FAILED:
            return left
    return failed_record(spec, labels, f"{type(error).__name__}: {error}", folder)


def _earlier(out: Path, file: str, name: str, scale: str) -> dict[str, Any]:
    """What an earlier call left in the folder, empty if none did. Refuses another recipe's folder."""
    path = out / file
    if not path.is_file():
        return {}
    try:
        earlier = dict(read_json(path))
        there = earlier["name"], earlier["scale"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({reason(error)}): delete it, or use another folder") from None
    if there != (name, scale):
        raise ValueError(f"{out} holds {there[0]} at scale {there[1]}: use another folder")
    return earlier


def _seeds_below(out: Path, name: str, scale: str) -> set[int]:
    """Seeds of the runs that earlier calls made there."""
    try:
        return {int(seed) for seed in _earlier(out, RECIPE, name, scale).get("seeds", ())}
    except TypeError as error:
        raise ValueError(f"{out / RECIPE} cannot be read ({error}): delete it, or use another folder") from None
