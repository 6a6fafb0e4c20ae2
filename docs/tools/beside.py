"""Columns of a recipe as far as they were run: the paper's numbers beside ours, what is best, and what the data were."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import paper

from mlrsnet.lab.recipes import RECIPES, Cell
from mlrsnet.lab.recipes.base import slug
from mlrsnet.lab.records import Record
from mlrsnet.lab.report.numbers import Stat, metric_stat, metric_text, number

NOTHING = ["Not run yet."]


@dataclass(frozen=True)
class Column:
    """What a recipe has of one task, and the runs there are, both by row; rows without runs are not among `runs`.

    setting: how the paper's numbers were obtained where ours were not.
    """

    name: str
    folder: Path
    cells: dict[str, Cell]
    runs: dict[str, list[Record]]
    setting: str = ""

    def same(self, what: str, of: Callable[[Record], Any]) -> Any:
        """What all runs have to share, since their numbers stand beside each other."""
        found = {repr(of(run)): of(run) for runs in self.runs.values() for run in runs}
        if len(found) > 1:
            raise ValueError(f"runs of {self.name} in {self.folder} differ in their {what}: {', '.join(found)}")
        return next(iter(found.values()))

    @property
    def metric(self) -> str:
        """In words, with its unit."""
        metric = self.same("metric", lambda run: run.data["metric"])
        return f"test {metric['name']}" + (f" ({metric['unit']})" if metric["unit"] else "")

    @property
    def note(self) -> str:
        """What the records say of the data."""
        return str(self.same("data", lambda run: run.data["task"])["note"])

    @property
    def title(self) -> str:
        """Name and epochs."""
        return f"{self.name}, {self.same('epochs', lambda run: run.spec['epochs'])} epochs"

    @property
    def head(self) -> str:
        """The same; where the records say what the data are not, that and the sizes, too."""
        lacks = re.findall(r"\bnot [^:;,]+", self.note)
        if not lacks:
            return self.title
        sizes = self.same("data", lambda run: run.data["task"])
        return f"{self.title}; {', '.join(lacks)}: {sizes['train']:,} to train, {sizes['test']:,} to test"

    def mean(self, row: str) -> float | None:
        """Of the last epochs; None where nothing was run, or a run diverged."""
        return paper.last_mean(self.runs.get(row, []))

    def best(self, rows: Sequence[str]) -> str | None:
        """The row with the best mean; None where none has one."""
        means = {row: value for row in rows if (value := self.mean(row)) is not None}
        higher = self.same("metric", lambda run: run.data["metric"])["better"] == "higher"
        return (max if higher else min)(means, key=lambda row: means[row], default=None)

    def shortfall(self, row: str, rivals: Sequence[str]) -> float | None:
        """By how much a row is worse than the best of others, in units of the metric; None where one of them is missing."""
        best, ours = self.best(rivals), self.mean(row)
        theirs = None if best is None else self.mean(best)
        if best is None or ours is None or theirs is None:
            return None
        return abs(ours - theirs) if self.best([row, best]) == best else -abs(ours - theirs)

    @property
    def winners(self) -> list[str]:
        """The best row, and those whose mean is printed alike."""
        best = self.best(list(self.cells))
        return [row for row in self.cells if best and metric_text(self.mean(row)) == metric_text(self.mean(best))]

    @property
    def printed(self) -> bool:
        """Whether the paper has numbers of it."""
        return any(cell.paper for cell in self.cells.values())

    @property
    def heads(self) -> list[str]:
        """Of the paper's numbers, where there are any, and of ours."""
        theirs = ", ".join(filter(None, (self.name, "paper", self.setting)))
        return [*([theirs] if self.printed else []), f"{self.head}, ours" if self.printed else self.head]

    def told(self, row: str) -> list[str]:
        """The paper's number and ours; ours is bold where it is the best of several."""
        cell, ours = self.cells.get(row), paper.told(self.runs.get(row, []))
        if cell is None:
            return [""] * len(self.heads)
        ours = f"**{ours}**" if len(self.runs) > 1 and row in self.winners else ours
        theirs = metric_stat(Stat(*cell.paper)) if cell.paper else ""
        return [theirs, ours] if self.printed else [ours]


def find(recipe: str, scale: str) -> list[Column]:
    """Those of which something was run."""
    folder, cells = paper.place(recipe, scale), RECIPES[recipe].cells(scale)
    setting, found = RECIPES[recipe].paper_setting.get(scale, ""), []
    for name in dict.fromkeys(cell.column for cell in cells):
        rows = {cell.row: cell for cell in cells if cell.column == name}
        runs = {row: paper.finished(folder / slug(name) / slug(row)) for row in rows}
        found.append(Column(name, folder, rows, {row: those for row, those in runs.items() if those}, setting))
    return [column for column in found if column.runs]


def beside(recipe: str, scale: str, column: str = "") -> list[str]:
    """The rows of a recipe that were run, in one column or in all, and the recipe's notes on the scale."""
    found = [one for one in find(recipe, scale) if column in ("", one.name)]
    notes = RECIPES[recipe].notes
    return [*tables(found), *((*notes.get("all", ()), *notes.get(scale, ())) if found else ())]


def tables(columns: Sequence[Column], *, every_row: bool = False) -> list[str]:
    """One for each metric, then what has to be known about them; a single line where nothing was run."""
    if not columns:
        return NOTHING
    lines = []
    for metric in dict.fromkeys(column.metric for column in columns):
        those = [column for column in columns if column.metric == metric]
        lines += [*_table(metric, those, every_row), ""]
    return [*lines, *_about(columns, every_row)]


def _table(metric: str, columns: Sequence[Column], every_row: bool) -> list[str]:
    heads = [head for column in columns for head in column.heads]
    lines = [f"| {metric} | {' | '.join(heads)} |", f"| --- |{' --- |' * len(heads)}"]
    for row in dict.fromkeys(row for column in columns for row in column.cells):
        if every_row or any(row in column.runs for column in columns):
            lines.append(f"| {row} | {' | '.join(text for column in columns for text in column.told(row))} |")
    return lines


def _about(columns: Sequence[Column], every_row: bool) -> list[str]:
    """Seeds, devices and records; rows that the tables leave out; what was said of the data."""
    runs = [those for column in columns for those in column.runs.values()]
    seeds = sorted({len(those) for those in runs})
    devices = dict.fromkeys(run.data["device"] for those in runs for run in those)
    places = dict.fromkeys(column.folder.name for column in columns)
    links = ", ".join(f"[{place}](../results/{place})" for place in places)
    lines = [
        f"Seeds: {' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))}. {', '.join(devices)}. Records: {links}."
    ]
    rows = dict.fromkeys(row for column in columns for row in column.cells)
    left_out = [row for row in rows if not any(row in column.runs for column in columns)]
    if left_out and not every_row:
        lines.append(f"Not run: {'; '.join(left_out)}.")
    return lines + [f"{column.name}: {column.note}." for column in columns if column.note]


def width() -> list[str]:
    """The mean training loss along random rays from the solutions, over rays and seeds."""
    columns = [column for column in find("width", "short") if _measured(column)]
    if not columns:
        return NOTHING
    lines = []
    for column in columns:
        rays = _measured(column)
        distances = next(iter(rays.values()))[0]["distance"]
        places = [place for place in range(len(distances)) if place % 2 == 0]
        heads = [f"at {distances[place]:g}" for place in places]
        lines += [f"| training loss of {column.head} | {' | '.join(heads)} |", f"| --- |{' --- |' * len(heads)}"]
        for row, found in rays.items():
            losses = [[number(line[place]) for one in found for line in one["train"]] for place in places]
            lines.append(f"| {row} | {' | '.join(map(_loss, losses))} |")
    return [*lines, "", *_about(columns, every_row=False)]


def _measured(column: Column) -> dict[str, list[dict[str, Any]]]:
    """What was measured along rays, by row."""
    found = {row: [run.data["rays"] for run in runs if "rays" in run.data] for row, runs in column.runs.items()}
    return {row: rays for row, rays in found.items() if rays}


def _loss(values: list[float | None]) -> str:
    """A ray that left all numbers has no mean."""
    there = [value for value in values if value is not None]
    return f"{mean(there):.3g}" if len(there) == len(values) else "not finite"
