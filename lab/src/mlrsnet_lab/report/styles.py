"""How each row is drawn, in every picture of a report: learned schedules thick, the first of them black."""

from collections.abc import Iterable
from dataclasses import dataclass

from mlrsnet_lab.report.tables import Row

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
