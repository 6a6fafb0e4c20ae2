"""The runs of a recipe, in the order in which they are made, and what each waits for."""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlrsnet_lab import checks, records
from mlrsnet_lab.recipes import SCALES, Cell, Choice, Recipe
from mlrsnet_lab.records import Record
from mlrsnet_lab.spec import RunSpec


@dataclass(frozen=True)
class Job:
    """One run of a recipe, or, if `is_start`, the weights that several runs start from.

    tried: names of the trials that its setting is chosen by.
    """

    cell: Cell
    seed: int
    tried: tuple[str, ...] = ()
    is_start: bool = False

    @property
    def name(self) -> str:
        """Different from every other job's."""
        if self.is_start:
            return f"start {json.dumps(self.cell.spec and self.cell.spec.start, sort_keys=True)}"
        return f"{self.cell.column}: {self.cell.row}, seed {self.seed}"

    @property
    def title(self) -> str:
        """For progress bars."""
        return f"{self.cell.column} {self.cell.row} seed {self.seed}"

    @property
    def after(self) -> list[str]:
        """Names of the jobs that come first, as far as there are such jobs."""
        if self.is_start:
            return []
        start, learned_in = replace(self, is_start=True).name, self.cell.learned_in
        learned = [] if learned_in is None else [Job(Cell(*learned_in, None), self.seed).name]
        return [start, *self.tried, *learned]

    @property
    def spec(self) -> RunSpec:
        """The cell's spec with this seed, and the path, relative to this run's folder, of a schedule that another run learns."""
        spec, cell = self.cell.spec, self.cell
        assert spec is not None
        if cell.learned_in is None:
            return replace(spec, seed=self.seed)
        source = Cell(*cell.learned_in, None).folder(self.seed) / records.SCHEDULE
        place = Path(os.path.relpath(source, cell.folder(self.seed))).as_posix()
        return with_options(replace(spec, seed=self.seed), {"schedule": place})


def trials(cell: Cell, seed: int) -> list[Job]:
    """Short trainings that choose the cell's setting, as runs of their own table."""
    choice, spec = cell.choice, cell.spec
    if choice is None or spec is None:
        return []
    column = f"{cell.column}: {choice.option} of {cell.row}, {records.CHOSEN}"
    short = replace(spec, epochs=min(spec.epochs, choice.epochs))
    rows = {f"{cell.row}, {choice.option} {value:g}": {choice.option: value} for value in choice.values}
    return [Job(Cell(row, column, with_options(short, options)), seed) for row, options in rows.items()]


def with_options(spec: RunSpec, options: dict[str, Any]) -> RunSpec:
    """The spec with these options of its schedule changed, or its LR."""
    own = {name: value for name, value in options.items() if name != "lr"}
    return replace(spec, lr=options.get("lr", spec.lr), schedule_options=spec.schedule_options | own)


def choose(recipe: Recipe, scale: str, seeds: Sequence[int], only: Sequence[str] = ()) -> list[Job]:
    """The runs of a recipe; `only` limits them to these rows and columns."""
    checks.one_of("scale", scale, SCALES)
    for seed in seeds:
        checks.whole_number("each of seeds", seed, 0)
    chosen = choose_cells(recipe, scale, only)
    missing = [cell for cell in chosen if cell.missing]
    if len(missing) == len(chosen):
        raise ValueError(f"there is nothing to run for {', '.join(only)}: {missing[0].missing}")
    ready = sorted((cell for cell in chosen if cell.spec is not None), key=lambda cell: cell.learned_in is not None)
    return [Job(cell, seed) for seed in seeds for cell in ready]


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
        own = trials(job.cell, trial_seed)
        new = [one for one in own if one.name not in found]
        for one in (*new, replace(job, tried=tuple(one.name for one in own))):
            if shared_starts and one.cell.spec is not None and one.cell.spec.start:
                start = replace(one, is_start=True)
                found.setdefault(start.name, start)
            found[one.name] = one
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
