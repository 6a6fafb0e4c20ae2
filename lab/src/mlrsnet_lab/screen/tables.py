"""Tables on a terminal."""

import math
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from mlrsnet_lab.records import Record
from mlrsnet_lab.report.layout import Column, columns
from mlrsnet_lab.report.tables import Table as Results

LEFT_TO_THE_REPORT = ("train loss", "s / epoch")


def run_lines(found: Sequence[Record]) -> list[str]:
    """A heading and one line per run: status, epochs, test metric of the last and the best epoch, folder.

    The folder comes last and is never cut, so that it can be copied and other programs can search the lines.
    """
    lines = [f"{'status':11} {'epoch':>7} {'last':>7} {'best':>7}  run"]
    for record in found:
        epoch = f"{len(record.epochs)}/{record.spec.get('epochs', '?')}"
        last, best = (number(record.result.get(key), ".2f") for key in ("last", "best"))
        lines.append(f"{record.status:11} {epoch:>7} {last:>7} {best:>7}  {record.folder}")
    return lines


def summary(results: Results, title: str) -> Table:
    """A table of the report, with means over the seeds."""
    shown = [column for column in columns(results) if column.title not in LEFT_TO_THE_REPORT]
    return plain(shown, title, "training loss, seconds, curves: in the report")


def plain(shown: Sequence[Column], title: str, caption: str = "curves: in the report") -> Table:
    """A table with these columns."""
    table = Table(title=title, box=SIMPLE_HEAD, caption=caption)
    for column in shown:
        width = 12 if column.numeric and column.title != "seeds" else 0
        table.add_column(column.title, justify="right" if column.numeric else "left", min_width=width)
    for index in range(len(shown[0].cells)):
        cells = [(column.cells[index], "bold" if index in column.bold else "") for column in shown]
        table.add_row(*(Text(text, style) for text, style in cells))
    return table


def number(value: Any, form: str) -> str:
    """A number in this format; a dash if it is missing or not finite."""
    return f"{value:{form}}" if isinstance(value, int | float) and math.isfinite(value) else "-"
