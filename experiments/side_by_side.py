"""Columns of a recipe as far as they were run: the paper's numbers beside ours, which is best, and on what data."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments import markdown, results
from mlrsnet_lab.records import Record
from mlrsnet_lab.report.numbers import metric_stat, metric_text
from mlrsnet_lab.report.tables import Row, Table


@dataclass(frozen=True)
class Column:
    """One table of a recipe's report, as a column beside others; `name` may say more than the table's title."""

    name: str
    folder: str
    table: Table

    @property
    def rows(self) -> dict[str, Row]:
        """Every planned row by name."""
        return {row.name: row for row in self.table.rows}

    @property
    def runs(self) -> dict[str, list[Record]]:
        """Trainings that ended by row; rows without any are left out."""
        found = {name: results.ended(row) for name, row in self.rows.items()}
        return {name: runs for name, runs in found.items() if runs}

    def same(self, what: str, of: Callable[[Record], Any]) -> Any:
        """A value that all runs must share, because their numbers stand beside each other."""
        found = {repr(of(run)): of(run) for runs in self.runs.values() for run in runs}
        if len(found) > 1:
            raise ValueError(f"runs of {self.name} in {self.folder} differ in their {what}: {', '.join(found)}")
        return next(iter(found.values()))

    @property
    def metric(self) -> str:
        """In words, with its unit."""
        return self.table.metric.title

    @property
    def note(self) -> str:
        """What the records say about the data."""
        return str(self.same("data", lambda run: run.data["task"])["note"])

    @property
    def title(self) -> str:
        """Name and epochs."""
        return f"{self.name}, {self.same('epochs', lambda run: run.spec['epochs'])} epochs"

    @property
    def head(self) -> str:
        """Name and epochs; if the records say that data are incomplete, that and the sizes too."""
        lacks = re.findall(r"\bnot [^:;,]+", self.note)
        if not lacks:
            return self.title
        sizes = self.same("data", lambda run: run.data["task"])
        return f"{self.title}; {', '.join(lacks)}: {sizes['train']:,} to train, {sizes['test']:,} to test"

    def mean(self, row: str, which: str = "last") -> float | None:
        """Of the last epochs, or of the `best`; None if nothing was run, or a training diverged."""
        return results.last_mean(self.rows[row], which) if row in self.rows else None

    def best(self, names: Sequence[str], which: str = "last") -> str | None:
        """The row with the best mean; None if none has one."""
        means = {row: value for row in names if (value := self.mean(row, which)) is not None}
        pick = max if self.table.metric.higher_is_better else min
        return pick(means, key=lambda row: means[row], default=None)

    def shortfall(self, row: str, rivals: Sequence[str], which: str = "last") -> float | None:
        """By how much a row is worse than the best of others, in units of the metric; None if one of them is missing."""
        best, ours = self.best(rivals, which), self.mean(row, which)
        theirs = None if best is None else self.mean(best, which)
        if ours is None or theirs is None:
            return None
        return theirs - ours if self.table.metric.higher_is_better else ours - theirs

    @property
    def printed(self) -> bool:
        """Whether the paper has numbers for it."""
        return any(row.paper for row in self.table.rows)

    @property
    def heads(self) -> list[str]:
        """Of the paper's numbers, if there are any, and of ours."""
        theirs = ", ".join(filter(None, (self.name, "paper", self.table.paper_setting)))
        return [
            *([theirs] if self.printed else []),
            f"{self.head}, ours" if self.printed else self.head,
        ]

    def cells(self, name: str) -> list[str]:
        """The paper's number and ours; ours is bold if it is the best of several."""
        row = self.rows.get(name)
        if row is None:
            return [""] * len(self.heads)
        ours = f"**{results.outcome(row)}**" if row.wins else results.outcome(row)
        return [metric_stat(row.paper) if row.paper else "", ours] if self.printed else [ours]


def find(folder: str) -> list[Column]:
    """The columns in which something was run."""
    return [Column(table.title, folder, table) for table in results.columns(folder)]


def scales(column: str, *folders: str) -> list[str]:
    """One column of a recipe: the paper's numbers, then ours at several scales."""
    found = [table for folder in folders for table in results.columns(folder) if table.title == column]
    rows = [{row.name: row for row in table.rows} for table in found]
    lines = []
    for name in dict.fromkeys(name for one in rows for name in one):
        printed = next((one[name].paper for one in rows if name in one), None)
        ours = [results.outcome(one[name]) if name in one else "" for one in rows]
        lines.append([name, metric_stat(printed) if printed else "", *ours])
    return markdown.table(["", "paper", *(f"ours, {_epochs(table)} epochs" for table in found)], lines)


def _epochs(table: Table) -> int:
    return max(int(run.spec["epochs"]) for row in table.rows for run in results.ended(row))


def recipe(folder: str) -> list[str]:
    """The rows of a recipe that were run, and the recipe's notes."""
    columns, section = find(folder), results.section(folder)
    notes = section.notes if section and columns else ()
    return [*tables(columns), *notes]


def tables(columns: Sequence[Column], *, every_row: bool = False) -> list[str]:
    """One for each metric, then what a reader must know about them; a single line if nothing was run."""
    if not columns:
        return results.NOTHING
    lines = []
    for metric in dict.fromkeys(column.metric for column in columns):
        those = [column for column in columns if column.metric == metric]
        lines += [*_table(metric, those, every_row), ""]
    return [*lines, *about(columns, every_row)]


def _table(metric: str, columns: Sequence[Column], every_row: bool) -> list[str]:
    names = dict.fromkeys(row for column in columns for row in column.rows)
    shown = [row for row in names if every_row or any(row in column.runs for column in columns)]
    heads = [head for column in columns for head in column.heads]
    return markdown.table(
        [metric, *heads], ([row, *(text for column in columns for text in column.cells(row))] for row in shown)
    )


def about(columns: Sequence[Column], every_row: bool = False) -> list[str]:
    """Seeds, devices and records; rows that the tables leave out; what the records say about the data."""
    runs = [those for column in columns for those in column.runs.values()]
    seeds = sorted({len(those) for those in runs})
    devices = dict.fromkeys(run.data["device"] for those in runs for run in those)
    links = ", ".join(f"[{place}](../results/{place})" for place in dict.fromkeys(column.folder for column in columns))
    count = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    lines = [f"Seeds: {count}. {', '.join(devices)}. Records: {links}."]
    rows = dict.fromkeys(row for column in columns for row in column.rows)
    left_out = [row for row in rows if not any(row in column.runs for column in columns)]
    if left_out and not every_row:
        lines.append(f"Not run: {'; '.join(left_out)}.")
    return lines + [f"{column.name}: {column.note}." for column in columns if column.note]


def difference(gap: float | None) -> str:
    """A shortfall in words."""
    return "" if gap is None else f"{metric_text(abs(gap))} {'worse' if gap > 0 else 'better'}"
