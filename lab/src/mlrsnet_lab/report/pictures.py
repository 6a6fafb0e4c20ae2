"""The pictures of a table: training loss, test metric and LR over epochs, and how a schedule was learned.

Only numbers are drawn, no text from files: titles and legends are text of the page.
"""

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlrsnet_lab.report.numbers import number, short_text
from mlrsnet_lab.report.runs import ALONE_LOSS, Curve, Points, Run, over_seeds
from mlrsnet_lab.report.styles import BLACK, OTHERS, Style
from mlrsnet_lab.report.tables import Row, Table
from mlrsnet_lab.sheets import Figure, Sheet

SIZE = (4.3, 3.0)
LARGEST_SVG = 120_000
"""Bytes; a picture that would take more becomes a PNG."""

PNG_DPI = 170
FIXED: dict[Any, Any] = {
    "svg.hashsalt": "mlrsnet",
    "svg.fonttype": "path",
    "font.size": 9,
    "font.family": "DejaVu Sans",
}
DECADES = 6
"""A log axis shows at most this many; otherwise a schedule's last steps, or a diverging loss, would flatten the rest."""


@dataclass(frozen=True)
class Picture:
    """An image, its title and its text for those who cannot see it."""

    title: str
    alt: str
    kind: str
    data: bytes

    @property
    def url(self) -> str:
        """The image itself, as an address."""
        return f"data:image/{self.kind};base64,{base64.b64encode(self.data).decode()}"


@dataclass(frozen=True)
class Line:
    """One curve of a panel."""

    name: str
    style: Style
    curve: Curve


@dataclass(frozen=True)
class Panel:
    """What one picture shows."""

    title: str
    lines: list[Line]
    log: bool = True
    zoom: bool = False
    zero: bool = False
    x: str = "epoch"
    log_x: bool = False


def training(table: Table, styles: dict[str, Style]) -> list[Picture]:
    """Training loss, test metric and LR, as far as they were recorded."""
    metric = table.metric
    panels = [
        Panel("training loss", _lines(table.rows, styles, lambda run: run.series("train_loss"))),
        Panel(
            metric.title,
            _lines(table.rows, styles, lambda run: run.series("test_metric")),
            log=not metric.higher_is_better,
            zoom=metric.higher_is_better,
        ),
        Panel("learning rate", _lines(table.rows, styles, Run.lr)),
    ]
    return rendered(panels)


def meta_training(table: Table, styles: dict[str, Style]) -> list[Picture]:
    """For learned schedules: gamma and the LR (gamma times the factor), and the hypergradient."""
    rows = [row for row in table.rows if any(_learns_a_network(run) for run in row.runs)]
    if not rows:
        return []
    rates, gammas = _lines(rows, styles, Run.lr), _lines(rows, styles, lambda run: run.series("gamma"))
    thin = [
        Line(f"gamma of {line.name}", Style("#7F7F7F", 1.2, line.style.dashes or (1, 1)), line.curve) for line in gammas
    ]
    panels = [
        Panel("LR (black) = factor x gamma (grey, dotted)", [*thin, *rates]),
        Panel("hypergradient", _lines(rows, styles, lambda run: run.series("hypergradient")), log=False, zero=True),
        Panel(
            f"each network of {rows[0].name} alone, LR / gamma at a loss of {ALONE_LOSS:g}", _alone(rows[0]), x="step"
        ),
    ]
    return rendered(panels)


def _learns_a_network(run: Run) -> bool:
    """HD and RTHO have a hypergradient too, but no network, and so no gamma."""
    return all(len(run.series(name)[0]) for name in ("hypergradient", "gamma"))


def _alone(row: Row) -> list[Line]:
    """The networks of one run, from the first (light) to the last (black)."""
    found = row.drawn[0].alone() if row.runs else []
    greys = [f"#{round(200 * (1 - place / max(len(found) - 1, 1))):02X}" for place in range(len(found))]
    curves = [over_seeds([points]) for points in found]
    return [
        Line(f"network {number}", Style(f"#{grey[1:] * 3}"), curve)
        for number, (grey, curve) in enumerate(zip(greys, curves, strict=True), 1)
        if curve is not None
    ]


def width(table: Table, styles: dict[str, Style]) -> list[Picture]:
    """Loss along random rays from the solutions, if it was measured."""
    panels = [
        Panel(title, _lines(table.rows, styles, lambda run, part=part: run.ray(part)), x="distance")  # type: ignore[misc]
        for title, part in (("training loss along random rays", "train"), ("test loss along random rays", "test"))
    ]
    return rendered(panels)


def _lines(rows: list[Row], styles: dict[str, Style], series: Callable[[Run], Points]) -> list[Line]:
    curves = [(row, over_seeds([series(run) for run in row.drawn])) for row in rows]
    return [Line(row.name, styles[row.name], curve) for row, curve in curves if curve is not None]


def panels(sheet: Sheet) -> list[Panel]:
    """Pictures of what was computed; a name has the same style in all of them, and lines without points above 0 are left out."""
    names = dict.fromkeys(name for one in sheet.figures for name in one.lines)
    looks = {name: OTHERS[place % len(OTHERS)] for place, name in enumerate(names)}
    return [_panel(one, looks) for one in sheet.figures]


def _panel(one: Figure, looks: dict[str, Style]) -> Panel:
    lines = []
    for name, (x, y) in one.lines.items():
        pairs = [(a, b) for a, b in zip(map(number, x), map(number, y), strict=False) if a and b and a > 0 and b > 0]
        if pairs:
            there, mean = np.array(pairs, dtype=np.float64).T
            lines.append(Line(name, looks[name], Curve(there, mean, mean, mean)))
    return Panel(one.title, lines, x=one.x, log_x=True)


def rendered(panels: list[Panel]) -> list[Picture]:
    """Pictures of those that have lines."""
    return [render(panel) for panel in panels if panel.lines]


def render(panel: Panel) -> Picture:
    """An SVG, or a PNG if the SVG is large; the same panel gives the same bytes."""
    try:
        import matplotlib
        from matplotlib.figure import Figure as Drawing
    except ImportError:
        raise ImportError("report needs matplotlib, which is not installed: pip install mlrsnet-lab") from None
    with matplotlib.rc_context(FIXED):
        figure = Drawing(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        _draw(axes, panel)
        kind, data = "svg+xml", _save(figure, format="svg", metadata={"Date": None, "Creator": None})
        if len(data) > LARGEST_SVG:
            kind, data = "png", _save(figure, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return Picture(panel.title, _alt(panel), kind, data)


def _save(figure: Any, **how: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, **how)
    return file.getvalue()


def _draw(axes: Any, panel: Panel) -> None:
    bottom, top = limits(panel)
    axes.set(xlabel=panel.x, yscale="log" if panel.log else "linear", ylim=(bottom, top))
    if panel.log and top < 100 * bottom:
        _plain_ticks(axes.yaxis, linear=top < 4 * bottom)
    if panel.zero:
        axes.axhline(0, color="#B0B0B0", linewidth=1)
    for line in sorted(panel.lines, key=lambda line: line.style.colour == BLACK):  # black on top
        _draw_line(axes, line, bottom if panel.log else -np.inf)
    if panel.log_x:
        _log_ticks(axes, np.unique(np.concatenate([line.curve.x for line in panel.lines])))
    else:
        axes.set_xlim(0, max(1, np.ceil(max(line.curve.x[-1] for line in panel.lines))))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _log_ticks(axes: Any, there: np.ndarray[Any, Any]) -> None:
    """At the points themselves, which are few."""
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    axes.set_xticks(there, [f"{x:,g}" for x in there])
    axes.xaxis.set_minor_locator(NullLocator())


def _plain_ticks(axis: Any, linear: bool) -> None:
    """Within two decades, 2 and 5 are easier to read than powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axis.set_major_locator(MaxNLocator(6, steps=(1, 2, 5, 10)) if linear else LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _draw_line(axes: Any, line: Line, bottom: float) -> None:
    # Values at or below the end of a log axis, such as 0, leave through the bottom instead of vanishing.
    curve, floor = line.curve, bottom / 10
    mean, low, high = (np.maximum(y, floor) for y in (curve.mean, curve.low, curve.high))
    style: Any = (0, line.style.dashes) if line.style.dashes else "-"
    if not np.array_equal(low, high):
        axes.fill_between(curve.x, low, high, color=line.style.colour, alpha=0.15, linewidth=0)
    marker = "." if len(curve.x) == 1 else None  # one point makes no line
    axes.plot(curve.x, mean, color=line.style.colour, linewidth=line.style.width, linestyle=style, marker=marker)


def limits(panel: Panel) -> tuple[float, float]:
    """The y axis: all of the data, unless that hides the differences.

    A log axis over epochs shows at most `DECADES`; a zoomed axis starts at the value after a quarter of the epochs, because the
    steep rise at the start leaves no room for the differences at the end.
    """
    every = np.concatenate([y for line in panel.lines for y in (line.curve.low, line.curve.high)])
    every = every[np.isfinite(every)]
    if panel.log:
        return _log_limits(every[every > 0], np.inf if panel.log_x else DECADES)
    low, high = (every.min(), every.max()) if len(every) else (0.0, 1.0)
    if panel.zoom:
        end = max(line.curve.x[-1] for line in panel.lines)
        late = [line.curve.mean[line.curve.x >= end / 4] for line in panel.lines]
        low = min((float(y.min()) for y in late if len(y)), default=low)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return float(low - margin), float(high + margin)


def _log_limits(positive: np.ndarray[Any, Any], decades: float) -> tuple[float, float]:
    if not len(positive):
        return 0.1, 1.0
    low, high, middle = float(positive.min()), float(positive.max()), float(np.median(positive))
    low, high = max(low, middle / 10 ** (decades / 2)), min(high, middle * 10 ** (decades / 2))
    margin = max((high / low) ** 0.05, 1.1)
    return low / margin, high * margin


def _alt(panel: Panel) -> str:
    ends = ", ".join(f"{line.name} {short_text(float(line.curve.mean[-1]))}" for line in panel.lines)
    over = panel.x if panel.log_x else f"{panel.x}s"
    return f"{panel.title} over {over}, ending at: {ends}"
