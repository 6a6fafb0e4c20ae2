"""Small drawings in tables: a row's line style, and its result as a dot on a common scale."""

from collections.abc import Iterable
from statistics import median

from mlrsnet_lab.report.markup import Html, element
from mlrsnet_lab.report.numbers import Stat
from mlrsnet_lab.report.styles import BLACK, Style
from mlrsnet_lab.report.tables import Table

WIDTH, HEIGHT, EDGE = 190, 18, 8


def swatch(style: Style) -> Html:
    """A piece of the line."""
    dashes = " ".join(f"{dash * style.width:g}" for dash in style.dashes)
    line = element(
        "line", x1=0, y1=6, x2=26, y2=6, stroke=_ink(style), stroke_width=style.width * 1.3, stroke_dasharray=dashes
    )
    return _svg(26, 12, line, "swatch")


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


def dots(ours: Stat | None, paper: tuple[float, float | None] | None, ends: tuple[float, float], style: Style) -> Html:
    """Our mean as a full dot with its spread as a line, the paper's as an open one."""
    drawn = [element("line", class_="rail", x1=EDGE, y1=9, x2=WIDTH - EDGE, y2=9)]
    if paper is not None:
        drawn.append(element("circle", class_="paper", cx=_place(paper[0], ends), cy=9, r=4))
    if ours is not None:
        drawn += _ours(ours, ends, _ink(style))
    return _svg(WIDTH, HEIGHT, Html("".join(drawn)), "dots")


def _ours(ours: Stat, ends: tuple[float, float], ink: str) -> Iterable[Html]:
    if ours.std:
        left, right = (_place(ours.mean + sign * ours.std, ends) for sign in (-1, 1))
        yield element("line", x1=left, y1=9, x2=right, y2=9, stroke=ink, stroke_width=2)
    outside = not ends[0] <= ours.mean <= ends[1]
    shape = {"fill": "none", "stroke": ink, "stroke_dasharray": "2 2"} if outside else {"fill": ink}
    yield element("circle", cx=_place(ours.mean, ends), cy=9, r=4.5, **shape)


def _place(value: float, ends: tuple[float, float]) -> float:
    share = (value - ends[0]) / (ends[1] - ends[0])
    return round(EDGE + (WIDTH - 2 * EDGE) * min(max(share, 0), 1), 1)


def _ink(style: Style) -> str:
    # The page's own colour of text, so that black is seen on a dark page too.
    return "currentColor" if style.colour == BLACK else style.colour


def _svg(width: float, height: float, inside: Html, class_: str) -> Html:
    return element(
        "svg", inside, class_=class_, viewBox=f"0 0 {width} {height}", width=width, height=height, aria_hidden="true"
    )
