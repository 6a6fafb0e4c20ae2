"""The tables, as lists of rows."""

import csv
import gzip
import math
from collections.abc import Callable, Iterable
from pathlib import Path

Row = dict[str, str]


def table(folder: Path, name: str) -> list[Row]:
    """The rows of `name`.csv.gz."""
    with gzip.open(folder / f"{name}.csv.gz", "rt", newline="") as file:
        return list(csv.DictReader(file))


def number(text: str) -> float:
    """NaN for an empty field.

    >>> number("0.5"), number("")
    (0.5, nan)
    """
    return float(text) if text else math.nan


def grouped(rows: Iterable[Row], key: Callable[[Row], tuple[str, ...]]) -> dict[tuple[str, ...], list[Row]]:
    """Rows with equal keys, in the order in which they were met."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found
