"""What was computed, not trained, as tables of text and lines to draw."""

from typing import Any

import numpy as np

from mlrsnet_lab.report.curves import Curve
from mlrsnet_lab.report.layout import Column
from mlrsnet_lab.report.numbers import NOTHING, number, short_text
from mlrsnet_lab.report.pictures import Line, Panel
from mlrsnet_lab.report.styles import OTHERS, Style
from mlrsnet_lab.sheets import Figure, Grid, Sheet


def columns(grid: Grid) -> list[Column]:
    """A table as columns of text."""
    found = []
    for place, title in enumerate(grid.columns):
        values = [row[place] if place < len(row) else None for row in grid.rows]
        numeric = all(value is None or number(value) is not None for value in values)
        found.append(Column(title, [_text(value) for value in values], numeric))
    return found


def panels(study: Sheet) -> list[Panel]:
    """Its pictures; a name has the same style in all of them, and lines without points above 0 are left out."""
    names = dict.fromkeys(name for one in study.figures for name in one.lines)
    looks = {name: OTHERS[place % len(OTHERS)] for place, name in enumerate(names)}
    found = [_panel(one, looks) for one in study.figures]
    return [panel for panel in found if panel.lines]


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


def _panel(one: Figure, looks: dict[str, Style]) -> Panel:
    lines = []
    for name, (x, y) in one.lines.items():
        pairs = [(a, b) for a, b in zip(map(number, x), map(number, y), strict=False) if a and b and a > 0 and b > 0]
        if pairs:
            there, mean = np.array(pairs, dtype=np.float64).T
            lines.append(Line(name, looks[name], Curve(there, mean, mean, mean)))
    return Panel(one.title, lines, x=one.x, log_x=True)
