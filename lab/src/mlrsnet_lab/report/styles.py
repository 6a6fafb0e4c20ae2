"""How each row is drawn in a report: learned schedules thick, the first of them black; in a table as a dot on a scale."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from mlrsnet_lab.report.tables import Row, Table

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#7F7F7F")
"""Okabe and Ito's, which the colour-blind can tell apart on white and on black; grey instead of yellow."""

DASHES: tuple[tuple[float, ...], ...] = ((), (4, 1.5), (6, 1.5, 1, 1.5), (2, 1, 1, 1))
"""For the next round through the colours; in units of the line's width."""

BLACK = "#000000"


@dataclass(frozen=True)
class Style:
    """Colour, width in points, and dashes (none: a full line)."""

    colour: str
    width: float = 1.4
    dashes: tuple[float, ...] = ()


LEARNED = [
    *(Style(BLACK, 2.4, dashes) for dashes in DASHES[:2]),
    *(Style(colour, 2.4, dashes) for dashes in DASHES[1:] for colour in reversed(COLOURS)),
]
"""Two in black; further ones are thick dashes in colours, in reverse order."""

OTHERS = [Style(colour, dashes=dashes) for dashes in DASHES for colour in COLOURS]


def styles(tables: Iterable[list[Row]]) -> dict[str, Style]:
    """One style per name; names in the same table get different styles, others may share one."""
    tables = [[row for row in rows if row.runs] for rows in tables]
    learned = {name for rows in tables for name in (row.name for row in rows if row.learned)}
    chosen: dict[str, Style] = {}
    for name in dict.fromkeys(row.name for rows in tables for row in rows):
        met = {row.name for rows in tables if any(row.name == name for row in rows) for row in rows}
        taken = {chosen[other] for other in met if other in chosen}
        ladder = LEARNED if name in learned else OTHERS
        chosen[name] = next((style for style in ladder if style not in taken), ladder[-1])
    return chosen


WIDTH, EDGE = 190, 8
"""Of the drawing with dots, as in `page.html.jinja`."""


def span(table: Table) -> tuple[float, float] | None:
    """The values at the left and right end of the scale; None with fewer than two rows to compare.

    A row that is far worse than the others ends up at the edge, so that the others can be told apart.
    """
    ours = [value for row in table.rows if (value := row.stat(table.deciding))]
    if len(ours) < 2:
        return None
    papers = [row.paper[0] for row in table.rows if row.paper and row.counted and table.comparable]
    every = [*papers, *(value.mean + sign * (value.std or 0) for value in ours for sign in (-1, 1))]
    low, high, middle = min(every), max(every), median(value.mean for value in ours)
    reach = 4 * ((high - middle) if table.metric.higher_is_better else (middle - low))
    if not reach:  # half of them are the best
        reach = high - low
    if table.metric.higher_is_better:
        low = max(low, middle - reach)
    else:
        high = min(high, middle + reach)
    return (low, high) if low < high else None


def place(value: float, ends: tuple[float, float]) -> float:
    """Where a value is drawn; beyond the ends at the edge."""
    share = (value - ends[0]) / (ends[1] - ends[0])
    return round(EDGE + (WIDTH - 2 * EDGE) * min(max(share, 0), 1), 1)


def ink(style: Style) -> str:
    """The page's own colour of text for black, so that it is seen on a dark page too."""
    return "currentColor" if style.colour == BLACK else style.colour


def dashes(style: Style) -> str:
    """As SVG has them."""
    return " ".join(f"{dash * style.width:g}" for dash in style.dashes)
