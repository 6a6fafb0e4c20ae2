"""A table as columns of text, for the page and for Markdown."""

from dataclasses import dataclass

from mlrsnet_lab.report.numbers import NOTHING, difference_text, metric_stat, short_stat
from mlrsnet_lab.report.tables import Section, Table
from mlrsnet_lab.sheets import Sheet

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


def heading(section: Section | Sheet) -> str:
    """Its title, and its scale if there is one."""
    return f"{section.title} [scale: {section.scale}]" if section.scale else section.title
