"""Markdown tables, and ranges of numbers."""

from collections.abc import Iterable, Sequence

from mlrsnet_lab.report.numbers import short_text


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table.

    >>> table(["", "LR"], [["cosine", "0.1"]])
    ['| | LR |', '| --- | --- |', '| cosine | 0.1 |']
    """
    return [line(heads), f"|{' --- |' * len(heads)}", *map(line, rows)]


def line(cells: Sequence[str]) -> str:
    """One line of a table."""
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def span(values: Iterable[float | None]) -> str:
    """The lowest and the highest of some numbers, with three digits.

    >>> span([0.25, 0.123]), span([2.0]), span([None])
    ('0.123 to 0.250', '2.00', '')
    """
    there = [value for value in values if value is not None]
    ends = dict.fromkeys(map(short_text, (min(there), max(there)))) if there else {}
    return " to ".join(ends)
