"""A table as columns of text, for the page and for Markdown."""

from dataclasses import dataclass
from typing import Any

from mlrsnet_lab.report.numbers import NOTHING, difference_text, metric_stat, number, short_stat, short_text
from mlrsnet_lab.report.tables import Table
from mlrsnet_lab.sheets import Grid, Sheet

HOW_TO_READ = (
    "The test result of the last epoch counts: mean ± sample standard deviation over the runs that have ended; other runs are "
    "listed, not averaged. Nothing was selected on test data: the best epoch is shown, not used. The best mean of a table is "
    "bold. Train loss and seconds per epoch are means too."
)


@dataclass(frozen=True)
class Column:
    """A heading, one text per row, and the rows that are bold."""

    title: str
    cells: list[str]
    numeric: bool = True
    bold: frozenset[int] = frozenset()


def columns(table: Table) -> list[Column]:
    """The columns to show; empty ones are left out, except the first two."""
    rows = table.rows
    paper = "paper" if table.comparable else f"paper ({table.paper_setting or 'at another scale'})"
    best = frozenset(index for index, row in enumerate(rows) if row.wins)
    deciding = [metric_stat(row.stat(table.deciding)) for row in rows]
    every = [
        Column("schedule", [row.name for row in rows], numeric=False),
        Column("validation" if table.trials else "last epoch", deciding, bold=best),
        *([Column("test, last epoch", [metric_stat(row.stat("last")) for row in rows])] if table.trials else []),
        Column("test, best epoch" if table.trials else "best epoch", [metric_stat(row.stat("best")) for row in rows]),
        Column(paper, [metric_stat(row.paper) for row in rows]),
        Column(f"{paper}, best epoch", [metric_stat(row.paper_best) for row in rows]),
        Column("difference", [difference_text(row.difference if table.comparable else None) for row in rows]),
        Column("seeds", [row.seeds if row.runs else NOTHING for row in rows]),
        Column("train loss", [short_stat(row.train_loss) for row in rows]),
        Column("s / epoch", [short_stat(row.seconds_per_epoch) for row in rows]),
    ]
    return [*every[:2], *(column for column in every[2:] if set(column.cells) - {NOTHING})]


def grid_columns(grid: Grid) -> list[Column]:
    """A table that was computed, as columns of text."""
    found = []
    for place, title in enumerate(grid.columns):
        values = [row[place] if place < len(row) else None for row in grid.rows]
        numeric = all(value is None or number(value) is not None for value in values)
        found.append(Column(title, [_text(value) for value in values], numeric))
    return found


def _text(value: Any) -> str:
    """
    >>> [_text(value) for value in (True, False, 300, 0.5, 0.012345, "words", None)]
    ['yes', 'no', '300', '0.5', '0.0123', 'words', '-']
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    found = number(value)
    if found is None:
        return NOTHING
    exact = f"{found:,.10g}"
    return exact if len(exact) <= len("100,000") else short_text(found)


def remarks(table: Table) -> list[tuple[str, str]]:
    """(row, remark) of everything that a reader must know about the numbers."""
    return [(row.name, remark) for row in table.rows for remark in row.remarks]


def describe(table: Table) -> str:
    """What a table measures and what its runs share; only runs say what is measured."""
    if not any(row.runs for row in table.rows):
        return "Not run."
    metric = table.metric
    better = "higher" if metric.higher_is_better else "lower"
    shared = f" All runs: {table.settings}." if table.settings else ""
    title = metric.title.removeprefix("test ") if table.trials else metric.title
    how = " The setting was chosen by the validation result; test results are shown beside it." if table.trials else ""
    return f"{title.capitalize()}, {better} is better.{how}{shared}"


def heading(sheet: Sheet) -> str:
    """Its title, and its scale if there is one."""
    return f"{sheet.title} [scale: {sheet.scale}]" if sheet.scale else sheet.title
