"""What was computed, not trained: a study.json as tables of text and lines to draw."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlrsnet_lab.report.curves import Curve
from mlrsnet_lab.report.gather import Findings
from mlrsnet_lab.report.layout import Column
from mlrsnet_lab.report.numbers import NOTHING, number, short_text
from mlrsnet_lab.report.pictures import Line, Panel
from mlrsnet_lab.report.runs import table
from mlrsnet_lab.report.styles import OTHERS, Style


@dataclass(frozen=True)
class GridText:
    """One table."""

    title: str
    note: str
    columns: list[Column]


def grids(study: Findings) -> list[GridText]:
    """Its tables; anything else is left out."""
    found = [_grid(one) for one in map(table, _list(study.data.get("grids")))]
    return [grid for grid in found if grid.columns]


def panels(study: Findings) -> list[Panel]:
    """Its pictures; a name has the same style in all of them, and lines without points above 0 are left out."""
    figures = [table(one) for one in _list(study.data.get("figures"))]
    names = dict.fromkeys(name for one in figures for name in table(one.get("lines")))
    looks = {name: OTHERS[place % len(OTHERS)] for place, name in enumerate(names)}
    found = [_panel(one, looks) for one in figures]
    return [panel for panel in found if panel.lines]


def _grid(one: dict[str, Any]) -> GridText:
    rows = [_list(row) for row in _list(one.get("rows"))]
    columns = []
    for place, title in enumerate(map(str, _list(one.get("columns")))):
        values = [row[place] if place < len(row) else None for row in rows]
        numeric = all(value is None or number(value) is not None for value in values)
        columns.append(Column(title, [_text(value) for value in values], numeric))
    return GridText(str(one.get("title")), str(one.get("note") or ""), columns)


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


def _panel(one: dict[str, Any], looks: dict[str, Style]) -> Panel:
    lines = []
    for name, points in table(one.get("lines")).items():
        x, y = (_list(axis) for axis in (*_list(points), [], [])[:2])
        pairs = [(a, b) for a, b in zip(map(number, x), map(number, y), strict=False) if a and b and a > 0 and b > 0]
        if pairs:
            there, mean = np.array(pairs, dtype=np.float64).T
            lines.append(Line(name, looks[name], Curve(there, mean, mean, mean)))
    return Panel(str(one.get("title")), lines, x=str(one.get("x")), log_x=True)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
