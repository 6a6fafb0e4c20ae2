"""Tables on a terminal."""

import math
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from mlrsnet.lab.records import Record
from mlrsnet.lab.report.layout import Column, columns
from mlrsnet.lab.report.tables import Table as Results

LEFT_TO_THE_REPORT = ("train loss", "s / epoch")


def run_lines(found: Sequence[Record]) -> list[str]:
    """A heading and a line a run: status, epochs, test metric of the last and of the best epoch, folder.

    The folder stands last and whole, to be copied, and the lines can be searched by other programs.
    """
    lines = [f"{'status':11} {'epoch':>7} {'last':>7} {'best':>7}  run"]
    for record in found:
        epoch = f"{len(record.epochs)}/{record.spec.get('epochs', '?')}"
        last, best = (number(record.result.get(key), ".2f") for key in ("last", "best"))
        lines.append(f"{record.status:11} {epoch:>7} {last:>7} {best:>7}  {record.folder}")
    return lines


def summary(results: Results, title: str) -> Table:
    """A table of the report: means over the seeds."""
    shown = [column for column in columns(results) if column.title not in LEFT_TO_THE_REPORT]
    return plain(shown, title, "training loss, seconds, curves: in the report")


def plain(shown: Sequence[Column], title: str, caption: str = "curves: in the report") -> Table:
    """Columns of text."""
    table = Table(title=title, box=SIMPLE_HEAD, caption=caption)
    for column in shown:
        width = 12 if column.numeric and column.title != "seeds" else 0
        table.add_column(column.title, justify="right" if column.numeric else "left", min_width=width)
    for index in range(len(shown[0].cells)):
        cells = [(column.cells[index], "bold" if index in column.bold else "") for column in shown]
        table.add_row(*(Text(text, style) for text, style in cells))
    return table


def describe_run(record: Record) -> str:
    """What it trains, in a few words: its place in a recipe's table, or the names in its spec."""
    labels = record.data.get("labels") or {}
    place = [str(labels[key]) for key in ("column", "row") if key in labels]
    if place:
        return " ".join([*place, f"seed {record.spec.get('seed')}"])
    return ", ".join(str(record.spec.get(name)) for name in ("task", "model", "optimizer", "schedule"))


def number(value: Any, form: str) -> str:
    """With so many digits; a dash for what is not there or not finite."""
    return f"{value:{form}}" if isinstance(value, int | float) and math.isfinite(value) else "-"
