"""A recipe: a table or figure of the paper, as runs of the lab."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mlrsnet_lab.spec import RunSpec

SGDR = "SGDR"
SGDR_NOTE = (
    "SGDR's cycles are 10, 20, 40, ... of the paper's epochs at every horizon; the last one is not finished when the training "
    "ends, as in the paper."
)
UNSCALED = ", T_val 100"
"""Ends the name of a row whose T_val is the paper's although its training is shorter."""

UNSCALED_NOTE = "Rows that end in T_val 100 have the paper's T_val, so fewer meta-updates than where it is scaled."
SCALES = ("smoke", "short", "paper")
"""smoke: minutes on a CPU, embedded data. short: a GPU, fewer epochs; milestones and T_val are scaled too. paper: its own."""


@dataclass(frozen=True)
class Choice:
    """A setting that is chosen by the validation result of short trainings, one per value, with the first seed."""

    option: str
    values: tuple[float, ...]
    epochs: int


@dataclass(frozen=True)
class Cell:
    """One number of a table: a row's method on a column's task.

    spec has no seed; it is None if there is nothing to run, and `missing` says why. paper is (mean, deviation).
    learned_in is the (row, column) whose run with the same seed leaves the schedule that this one is trained with.
    choice is an option of the schedule that is chosen first. optional: left out if its data, which few people have, are missing.
    """

    row: str
    column: str
    spec: RunSpec | None
    paper: tuple[float, float] | None = None
    missing: str | None = None
    learned_in: tuple[str, str] | None = None
    choice: Choice | None = None
    optional: bool = False

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
    paper: dict[str, tuple[float, float]] = field(default_factory=dict)
    paper_best: dict[str, tuple[float, float]] = field(default_factory=dict)


def no_averages(scale: str) -> Sequence[Average]:
    """For tables of single columns, as most are."""
    return ()


@dataclass(frozen=True)
class Recipe:
    """How to make a table: `make(scale)` are its numbers, `claim` is what the paper says of it.

    notes: what a reader must know, by scale; under "all" for every scale.
    paper_setting: by scale, how the paper's setting differs from ours.
    averages: by scale, tables over several columns.
    stand_in: at scale smoke, small data and networks stand in for those that the columns name.
    for_cpu: the scales that need no GPU.
    """

    name: str
    title: str
    claim: str
    make: Callable[[str], Sequence[Cell]]
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    paper_setting: dict[str, str] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    averages: Callable[[str], Sequence[Average]] = no_averages
    stand_in: bool = False
    for_cpu: tuple[str, ...] = ("smoke",)

    def cells(self, scale: str) -> list[Cell]:
        """Its numbers; a column that stands in for another says so."""
        return [_renamed(cell) if self.stand_in and scale == "smoke" else cell for cell in self.make(scale)]

    def describe(self, scale: str, seeds: Sequence[int], absent: Mapping[str, str] | None = None) -> dict[str, Any]:
        """For the report: every row and column, also without runs; `absent`: columns whose data are missing, and why."""
        cells = self.cells(scale)
        sgdr = (SGDR_NOTE,) if any(cell.row == SGDR for cell in cells) else ()
        unscaled = (UNSCALED_NOTE,) if any(cell.row.endswith(UNSCALED) for cell in cells) else ()
        return {
            "format": 1,
            "name": self.name,
            "title": self.title,
            "scale": scale,
            "claim": self.claim,
            "paper_setting": self.paper_setting.get(scale, ""),
            "notes": [*self.notes.get("all", ()), *sgdr, *self.notes.get(scale, ()), *unscaled],
            "rows": list(dict.fromkeys(cell.row for cell in cells)),
            "columns": list(dict.fromkeys(cell.column for cell in cells)),
            "seeds": list(seeds),
            "cells": [
                {
                    "row": cell.row,
                    "column": cell.column,
                    "paper": cell.paper,
                    "missing": cell.missing or (absent or {}).get(cell.column),
                }
                for cell in cells
            ],
            "averages": [asdict(average) for average in self.averages(scale)],
        }


@dataclass(frozen=True)
class Grid:
    """A table of a study: numbers, words and yes or no."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[float | str | bool]]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A picture of a study: named lines of (x, y), both axes logarithmic."""

    title: str
    x: str
    lines: dict[str, tuple[Sequence[float], Sequence[float]]]


@dataclass(frozen=True)
class Study:
    """A part of the paper that is computed, not trained: `measure(scale, seed)` gives its tables and pictures."""

    name: str
    title: str
    claim: str
    measure: Callable[[str, int], tuple[Sequence[Grid], Sequence[Figure]]]
    notes: tuple[str, ...] = ()

    def findings(self, scale: str, seed: int) -> dict[str, Any]:
        """For the report: what was measured, as plain JSON."""
        grids, figures = self.measure(scale, seed)
        said = {"name": self.name, "title": self.title, "scale": scale, "claim": self.claim, "notes": self.notes}
        found = {"grids": [asdict(grid) for grid in grids], "figures": [asdict(figure) for figure in figures]}
        return {"format": 1, **said, "seed": seed, **found}


def _renamed(cell: Cell) -> Cell:
    source = cell.learned_in and (cell.learned_in[0], f"{cell.learned_in[1]} (stand-in)")
    return replace(cell, column=f"{cell.column} (stand-in)", learned_in=source)


def slug(words: str) -> str:
    """A name that every file system accepts."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "x"
