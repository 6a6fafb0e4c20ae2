"""Small drawings in the page's tables: a row's line style, and its result as a dot on a common scale."""

from statistics import median

from mlrsnet_lab.report.styles import BLACK, Style
from mlrsnet_lab.report.tables import Table

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
