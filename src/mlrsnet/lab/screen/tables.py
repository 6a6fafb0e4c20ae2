"""Tables on a terminal."""

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from mlrsnet.lab.records import Record
from mlrsnet.lab.report.layout import columns
from mlrsnet.lab.report.tables import Table as Results

SHOWN = {"last": ".2f", "best": ".2f", "train_loss": ".4f"}


def result_table(title: str, found: Sequence[Record]) -> Table:
    """Last epoch first, the best beside it."""
    table = Table(title=title, box=SIMPLE_HEAD)
    for name in ("run", "seed", "status"):
        table.add_column(name)
    for name in ("last", "best", "train loss", "s / epoch"):
        table.add_column(name, justify="right", no_wrap=True)
    for record in found:
        label = " ".join(filter(None, (record.data["labels"].get("column"), record.data["labels"].get("row"))))
        seconds = (record.data.get("timing") or {}).get("seconds_per_epoch")
        numbers = [_number(record.result.get(key), form) for key, form in SHOWN.items()]
        name = label or describe_run(record)
        table.add_row(name, str(record.spec["seed"]), record.status, *numbers, _number(seconds, ".3g"))
    return table


def summary(results: Results, title: str) -> Table:
    """A table of the report: means over the seeds."""
    table = Table(title=title, box=SIMPLE_HEAD, caption="training loss, seconds, curves: in the report")
    shown = [column for column in columns(results) if column.title not in ("train loss", "s / epoch")]
    for column in shown:
        table.add_column(
            column.title, justify="right" if column.numeric else "left", min_width=12 if column.numeric else 0
        )
    for index in range(len(results.rows)):
        table.add_row(*(_bold(column.cells[index], index in column.bold) for column in shown))
    return table


def describe_run(record: Record) -> str:
    """What it trains, in a few words."""
    return ", ".join(str(record.spec[name]) for name in ("task", "model", "optimizer", "schedule"))


def _number(value: Any, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"


def _bold(text: str, yes: bool) -> str:
    return f"[bold]{text}[/bold]" if yes else text
