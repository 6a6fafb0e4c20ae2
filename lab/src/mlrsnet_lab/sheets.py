"""A recipe: a table or figure of the paper, as runs of the lab; and its sheet, which says what was made at one scale."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a report loads nothing that trains
    from mlrsnet_lab.spec import RunSpec

SGDR = "SGDR"
SGDR_NOTE = (
    "SGDR's cycles are 10, 20, 40, ... of the paper's epochs at every horizon; the last one is not finished when the training "
    "ends, as in the paper."
)
UNSCALED = ", T_val 100"
"""Ends the name of a row whose T_val is the paper's although its training is shorter."""

UNSCALED_NOTE = "Rows that end in T_val 100 have the paper's T_val, so fewer meta-updates than where it is scaled."
SCALES = ("smoke", "cpu", "short", "paper")
"""smoke: minutes on a CPU, embedded data. cpu: real data, small networks, hours on two cores. short: a GPU, fewer epochs;
milestones and T_val are scaled too. paper: its own."""


Paper = tuple[float, float | None]
"""A number of the paper, and its deviation."""


@dataclass(frozen=True)
class Choice:
    """A setting that is chosen by the validation result of short trainings, one per value, with the first seed."""

    option: str  # of its schedule, or lr
    values: tuple[float, ...]
    epochs: int


@dataclass(frozen=True)
class Cell:
    """One number of a table: a row's method on a column's task.

    spec has no seed; it is None if there is nothing to run, and `missing` says why. paper is (mean, deviation).
    learned_in is the (row, column) whose run with the same seed leaves the schedule that this one is trained with.
    choice is an option of the schedule that is chosen first. optional: left out if its data, which few people have, are missing.
    seeds: how many of the recipe's seeds it is trained with, if not with all.
    """

    row: str
    column: str
    spec: "RunSpec | None"
    paper: Paper | None = None
    missing: str | None = None
    learned_in: tuple[str, str] | None = None
    choice: Choice | None = None
    optional: bool = False
    seeds: int | None = None

    def folder(self, seed: int) -> Path:
        """Where the run of a seed is kept, below the recipe's folder."""
        return Path(slug(self.column), slug(self.row), f"seed{seed}")


@dataclass(frozen=True)
class Average:
    """One more table: means over all runs of these columns, with the paper's (mean, deviation) of each row.

    paper: of the last epoch. paper_best: of the best epoch.
    """

    title: str
    columns: Sequence[str]
    paper: Mapping[str, Paper | None] = field(default_factory=dict)
    paper_best: Mapping[str, Paper | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """A table that was computed: numbers, words and yes or no."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A picture that was computed: named lines of (x, y), both axes logarithmic."""

    title: str
    x: str
    lines: dict[str, tuple[Sequence[Any], Sequence[Any]]]


@dataclass(frozen=True)
class Sheet:
    """A recipe at one scale, as a recipe.json or study.json has it: what is made, what the paper has beside it, what was computed.

    cells: every place of its tables, also those without runs. averages: tables over several columns.
    paper_setting: how the paper's setting differs from ours.
    made: for what was computed, versions, device, commit and seconds.
    """

    name: str
    scale: str
    title: str
    claim: str = ""
    notes: tuple[str, ...] = ()
    seeds: Sequence[Any] = ()
    paper_setting: str = ""
    cells: Sequence[Cell] = ()
    averages: Sequence[Average] = ()
    grids: Sequence[Grid] = ()
    figures: Sequence[Figure] = ()
    made: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        told = {"format": 1, "name": self.name, "title": self.title, "scale": self.scale, "claim": self.claim}
        told |= {"notes": list(self.notes)}
        if self.grids:
            found = {"grids": [asdict(grid) for grid in self.grids], "figures": [asdict(one) for one in self.figures]}
            return {**told, "seed": self.seeds[0], **found, **self.made}
        cells = [
            {key: getattr(cell, key) for key in ("row", "column", "paper", "missing", "seeds")} for cell in self.cells
        ]
        averages = [asdict(average) for average in self.averages]
        return told | {
            "paper_setting": self.paper_setting,
            "seeds": list(self.seeds),
            "cells": cells,
            "averages": averages,
        }


def nothing(scale: str) -> Sequence[Any]:
    """For recipes without runs, or without averages."""
    return ()


@dataclass(frozen=True)
class Recipe:
    """How to make a part of the paper: `make(scale)` are the numbers of its tables, `claim` is what the paper says of it.

    notes: what a reader must know, by scale; under "all" for every scale.
    paper_setting: by scale, how the paper's setting differs from ours.
    averages: by scale, tables over several columns.
    stand_in: at scale smoke, small data and networks stand in for those that the columns name.
    for_cpu: the scales that need no GPU.
    scales: those that it has.
    measure: for what is computed, not trained: `measure(scale, seed)` gives its tables and pictures.
    """

    name: str
    title: str
    claim: str
    make: Callable[[str], Sequence[Cell]]
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    paper_setting: dict[str, str] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    averages: Callable[[str], Sequence[Average]] = nothing
    stand_in: bool = False
    for_cpu: tuple[str, ...] = ("smoke", "cpu")
    scales: tuple[str, ...] = SCALES
    measure: Callable[[str, int], tuple[Sequence[Grid], Sequence[Figure]]] | None = None

    def cells(self, scale: str) -> list[Cell]:
        """Its numbers; a column that stands in for another says so."""
        return [_renamed(cell) if self.stand_in and scale == "smoke" else cell for cell in self.make(scale)]

    def sheet(self, scale: str, seeds: Sequence[int], absent: Mapping[str, str] | None = None) -> Sheet:
        """The recipe at a scale; `absent`: columns whose data are missing, and why."""
        reasons, cells = absent or {}, self.cells(scale)
        sgdr = (SGDR_NOTE,) if any(cell.row == SGDR for cell in cells) else ()
        unscaled = (UNSCALED_NOTE,) if any(cell.row.endswith(UNSCALED) for cell in cells) else ()
        return Sheet(
            self.name,
            scale,
            self.title,
            self.claim,
            (*self.notes.get("all", ()), *sgdr, *self.notes.get(scale, ()), *unscaled),
            seeds,
            self.paper_setting.get(scale, ""),
            [replace(cell, missing=cell.missing or reasons.get(cell.column)) for cell in cells],
            self.averages(scale),
        )


def _renamed(cell: Cell) -> Cell:
    source = cell.learned_in and (cell.learned_in[0], f"{cell.learned_in[1]} (stand-in)")
    return replace(cell, column=f"{cell.column} (stand-in)", learned_in=source)


def slug(words: str) -> str:
    """A name that every file system accepts."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "x"
