"""The runs of recipes, in the order in which they are made, what each waits for, and which of them are the same."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlrsnet_lab import checks, records
from mlrsnet_lab.recipes import SCALES, Cell, Choice, Recipe
from mlrsnet_lab.records import Record
from mlrsnet_lab.spec import RunSpec


@dataclass(frozen=True)
class Home:
    """The recipe that a run belongs to, the scale, and the folder for all of its runs."""

    recipe: str = ""
    scale: str = ""
    folder: Path = Path()


@dataclass(frozen=True)
class Job:
    """One run of a recipe, or, if `is_start`, the weights that several runs start from.

    tried: names of the trials that its setting is chosen by.
    """

    cell: Cell
    seed: int
    tried: tuple[str, ...] = ()
    is_start: bool = False
    home: Home = Home()

    @property
    def name(self) -> str:
        """Different from every other job's."""
        if self.is_start:
            return f"start {json.dumps(self.cell.spec and self.cell.spec.start, sort_keys=True)}"
        return f"{self.home.recipe}, {self.cell.column}: {self.cell.row}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        """Where its run is kept."""
        return self.home.folder / self.cell.folder(self.seed)

    @property
    def labels(self) -> dict[str, str]:
        """Of its run."""
        home = {"recipe": self.home.recipe, "scale": self.home.scale}
        return {**home, "row": self.cell.row, "column": self.cell.column}

    @property
    def learned(self) -> "Job | None":
        """The job that leaves the schedule which this one is trained with, if there is one."""
        place = self.cell.learned_in
        return None if place is None else Job(Cell(*place, None), self.seed, home=self.home)

    @property
    def title(self) -> str:
        """For progress bars."""
        return f"{self.cell.column} {self.cell.row} seed {self.seed}"

    @property
    def after(self) -> list[str]:
        """Names of the jobs that come first, as far as there are such jobs."""
        if self.is_start:
            return []
        learned = [] if self.learned is None else [self.learned.name]
        return [replace(self, is_start=True).name, *self.tried, *learned]

    @property
    def spec(self) -> RunSpec:
        """The cell's spec with this seed, and the path, relative to this run's folder, of a schedule that another run learns."""
        spec = self.cell.spec
        assert spec is not None
        if self.learned is None:
            return replace(spec, seed=self.seed)
        source = self.learned.folder / records.SCHEDULE
        place = Path(os.path.relpath(source, self.folder)).as_posix()
        return with_options(replace(spec, seed=self.seed), {"schedule": place})


def trials(job: Job, seed: int) -> list[Job]:
    """Short trainings that choose the setting of a job's cell, as runs of their own table."""
    cell, choice, spec = job.cell, job.cell.choice, job.cell.spec
    if choice is None or spec is None:
        return []
    column = f"{cell.column}: {choice.option} of {cell.row}, {records.CHOSEN}"
    short = replace(spec, epochs=min(spec.epochs, choice.epochs))
    rows = {f"{cell.row}, {choice.option} {value:g}": {choice.option: value} for value in choice.values}
    return [Job(Cell(row, column, with_options(short, options)), seed, home=job.home) for row, options in rows.items()]


def with_options(spec: RunSpec, options: dict[str, Any]) -> RunSpec:
    """The spec with these options of its schedule changed, or its LR."""
    own = {name: value for name, value in options.items() if name != "lr"}
    return replace(spec, lr=options.get("lr", spec.lr), schedule_options=spec.schedule_options | own)


def choose(
    recipe: Recipe, scale: str, seeds: Sequence[int] | None = None, only: Sequence[str] = (), folder: Path = Path()
) -> list[Job]:
    """The runs of a recipe, below a folder. `seeds`: the recipe's own if None. `only` limits them to these rows and columns."""
    checks.one_of("scale", scale, SCALES)
    checks.one_of(f"scale of {recipe.name}", scale, recipe.scales)
    for seed in seeds or ():
        checks.whole_number("each of seeds", seed, 0)
    chosen = choose_cells(recipe, scale, only)
    missing = [cell for cell in chosen if cell.missing]
    if len(missing) == len(chosen):
        raise ValueError(f"there is nothing to run for {', '.join(only)}: {missing[0].missing}")
    ready = sorted((cell for cell in chosen if cell.spec is not None), key=lambda cell: cell.learned_in is not None)
    home = Home(recipe.name, scale, folder)
    return [
        Job(cell, seed, home=home)
        for place, seed in enumerate(recipe.seeds if seeds is None else seeds)
        for cell in ready
        if seeds is not None or cell.seeds is None or place < cell.seeds
    ]


def choose_cells(recipe: Recipe, scale: str, only: Sequence[str]) -> list[Cell]:
    """The cells of these rows and columns, and those whose schedules they use."""
    cells = recipe.cells(scale)
    rows, columns = [list(dict.fromkeys(names)) for names in zip(*((c.row, c.column) for c in cells), strict=True)]
    for name in only:
        checks.one_of("only", name, (*rows, *columns))
    chosen = [
        cell
        for cell in cells
        if (not set(only) & set(rows) or cell.row in only) and (not set(only) & set(columns) or cell.column in only)
    ]
    wanted = {cell.learned_in for cell in chosen}
    return [cell for cell in cells if cell in chosen or (cell.row, cell.column) in wanted]


def in_order(jobs: Sequence[Job], trial_seed: int, *, shared_starts: bool = False) -> dict[str, Job]:
    """All that has to be made for these jobs, by name. Trials come before the first run of their row and column, with one seed.

    With `shared_starts`, for runs that are made at once, weights to start from are made in jobs of their own.
    """
    found: dict[str, Job] = {}
    for job in jobs:
        own = trials(job, trial_seed)
        new = [one for one in own if one.name not in found]
        for one in (*new, replace(job, tried=tuple(one.name for one in own))):
            if shared_starts and one.cell.spec is not None and one.cell.spec.start:
                start = replace(one, is_start=True)
                found.setdefault(start.name, start)
            found[one.name] = one
    return found


def owners(jobs: Mapping[str, Job]) -> dict[str, str]:
    """For every job the name of the one that makes its run: of those whose runs are the same one that has ended, or begun, or the
    first."""
    same: dict[str, list[Job]] = {}
    for name, key in _keys(jobs).items():
        same.setdefault(key, []).append(jobs[name])
    found: dict[str, str] = {}
    for twins in same.values():
        owner = min(twins, key=_progress) if len(twins) > 1 else twins[0]
        found |= {job.name: owner.name for job in twins}
    return found


def _progress(job: Job) -> int:
    return 0 if records.has_ended(job.folder) else 1 if (job.folder / records.CHECKPOINT).is_file() else 2


def _keys(jobs: Mapping[str, Job]) -> dict[str, str]:
    """By name, what decides a job's run: its spec, and the runs that it takes a schedule or a setting from."""
    found: dict[str, str] = {}

    def key(name: str) -> str:
        if name not in jobs:
            return name
        if name not in found:
            job = jobs[name]
            spec = (
                job.cell.spec.to_dict() | {"seed": job.seed} if job.cell.spec is not None and not job.is_start else name
            )
            learned = [] if job.learned is None else [key(job.learned.name)]
            found[name] = json.dumps([spec, learned, [key(one) for one in job.tried]], sort_keys=True)
        return found[name]

    for name in jobs:
        key(name)
    return found


def best(tried: Sequence[Record | None], choice: Choice | None) -> dict[str, float] | None:
    """The value with the best validation result, as an option; None if all trials failed."""
    if choice is None or not tried:
        return {}

    def rank(record: Record | None) -> float:
        if record is None or record.status != records.FINISHED or record.result.get("val_metric") is None:
            return math.inf
        value = record.result["val_metric"]
        return -float(value) if record.data["metric"]["better"] == "higher" else float(value)

    ranks = [rank(record) for record in tried]
    if min(ranks) == math.inf:
        return None
    return {choice.option: choice.values[ranks.index(min(ranks))]}
