"""Panels: curves over a training, mean over seeds with a band from the lowest to the highest; bars; networks alone.

A row without records is left out, and a panel without any says that it was not run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from experiments import results
from experiments.drawing import plain
from experiments.figures.looks import Look, look
from mlrsnet_lab import records
from mlrsnet_lab.report.runs import Curve, Points, Run, over_seeds
from mlrsnet_lab.report.tables import Row

SCALE = "cpu"
TITLE, LABEL, TICK, LEGEND = 9.5, 9, 8, 8.5
Handles = dict[str, Any]


def place(recipe: str) -> str:
    """The folder of results/ that holds a recipe's runs."""
    return results.place(recipe, SCALE)


def recorded(recipe: str) -> bool:
    """Whether any run of it is kept."""
    return (results.RESULTS / place(recipe) / records.PACK).is_file()


@dataclass(frozen=True)
class Line:
    """A row of a recipe, and how it is drawn."""

    recipe: str
    column: str
    row: str
    look: Look

    @property
    def found(self) -> Row | None:
        """Its trainings; None if none has ended."""
        return results.rows(place(self.recipe), self.column).get(self.row) if recorded(self.recipe) else None

    def curve(self, series: Callable[[Run], Points]) -> Curve | None:
        """Over its seeds."""
        return over_seeds([series(run) for run in self.found.drawn]) if self.found else None


def lines(recipe: str, column: str, rows: Sequence[str], dashes: tuple[float, ...] = ()) -> list[Line]:
    """Methods on a task; dashed where two tasks share a panel."""
    return [Line(recipe, column, row, look(row).dashed(dashes) if dashes else look(row)) for row in rows]


def accuracy(run: Run) -> Points:
    """Test accuracy or perplexity over epochs."""
    return run.series("test_metric")


def loss(run: Run) -> Points:
    """Training loss over epochs."""
    return run.series("train_loss")


def perplexity(run: Run) -> Points:
    """Training perplexity over epochs."""
    epochs, losses = loss(run)
    return epochs, np.exp(np.minimum(losses, 100))


def lr(run: Run) -> Points:
    """LR over epochs."""
    return run.lr()


def share(run: Run) -> Points:
    """LR over the share of the training, in percent."""
    epochs, rates = run.lr()
    return 100 * epochs / run.spec["epochs"], rates


@dataclass(frozen=True)
class Panel:
    """Curves; `draw` returns what a legend needs."""

    title: str
    lines: Sequence[Line]
    series: Callable[[Run], Points] = accuracy
    x: str = "epoch"
    higher: bool | None = True
    own_legend: bool = False
    """higher: whether that is better, which decides the axis; None for LRs and losses, which get a log axis."""

    def curves(self) -> list[tuple[Look, Curve]]:
        """What there is to draw."""
        found = ((line.look, line.curve(self.series)) for line in self.lines)
        return [(one, curve) for one, curve in found if curve is not None]

    def draw(self, axes: Any) -> Handles:
        """All curves, the learned ones on top."""
        curves = self.curves()
        if not curves:
            return not_run(axes, self.title)
        low, high = limits(curves, self.higher, every=self.own_legend)
        axes.set(yscale="linear" if self.higher else "log", ylim=(low, high))
        drawn: Handles = {}
        for one, curve in sorted(curves, key=lambda pair: pair[0].width):
            line = stroke(axes, one, curve, low)
            drawn.setdefault(one.label, line)
        axes.set_xlim(0, max(curve.x[-1] for _, curve in curves))
        self._words(axes, curves, low, high)
        handles = {one.label: drawn[one.label] for one, _ in curves}
        if self.own_legend:
            below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2, "columnspacing": 1.2}
            axes.legend(handles.values(), handles, frameon=False, fontsize=TICK, handlelength=1.2, **below)
        return {} if self.own_legend else handles

    def _words(self, axes: Any, curves: Sequence[tuple[Look, Curve]], low: float, high: float) -> None:
        ends = {one.label: curve.mean[-1] for one, curve in curves}
        beyond = {"below": [name for name, end in ends.items() if end < low]}
        beyond["above"] = [name for name, end in ends.items() if end > high]
        said = "; ".join(f"{where}: {', '.join(names)}" for where, names in beyond.items() if names)
        finish(axes, self.title, f"{self.x}\n({said})" if said and self.higher is not None else self.x)
        if not self.higher:
            few_ticks(axes, low, high)


@dataclass(frozen=True)
class Bars:
    """Seconds per epoch."""

    title: str
    lines: Sequence[Line]

    def draw(self, axes: Any) -> Handles:
        """One bar per row with its number."""
        stats = [(line.look, line.found.seconds_per_epoch) for line in self.lines if line.found]
        there = [(one, stat.mean) for one, stat in stats if stat]
        if not there:
            return not_run(axes, self.title)
        places = range(len(there), 0, -1)
        axes.barh(places, [seconds for _, seconds in there], color=[one.colour for one, _ in there], height=0.7)
        axes.set_yticks(places, [one.label for one, _ in there])
        longest = max(seconds for _, seconds in there)
        for spot, (_, seconds) in zip(places, there, strict=True):
            axes.text(seconds + 0.02 * longest, spot, f"{seconds:.2g}", va="center", fontsize=TICK)
        axes.set_xlim(0, 1.15 * longest)
        finish(axes, self.title, "seconds")
        axes.grid(visible=False, axis="y")
        axes.set_axisbelow(True)
        return {}


@dataclass(frozen=True)
class Alone:
    """Each network of a meta-training by itself, from the first (light) to the last (black)."""

    title: str
    networks: Callable[[], Mapping[str, Any]]
    row: str

    def draw(self, axes: Any) -> Handles:
        """Its curves."""
        found = self.networks().get(self.row)
        if not found:
            return not_run(axes, self.title)
        for number, curve in enumerate(found):
            grey = 0.8 * (1 - number / max(len(found) - 1, 1))
            axes.plot(curve, color=f"{grey:.3f}", linewidth=1.4)
        low, high = log_limits(np.array(found))
        axes.set(xlim=(0, len(found[0]) - 1), yscale="log", ylim=(low, high))
        few_ticks(axes, low, high)
        finish(axes, self.title, "step (the lightest is the first network)")
        return {}


def stroke(axes: Any, one: Look, curve: Curve, low: float) -> Any:
    """One curve and its band; returns the line."""
    dashes: Any = (0, one.dashes) if one.dashes else "-"
    floor = low / 10 if low > 0 else low - 100  # so that zeros leave a log axis through the bottom
    bottom, mean, top = (np.maximum(y, floor) for y in (curve.low, curve.mean, curve.high))
    if not np.array_equal(bottom, top):
        axes.fill_between(curve.x, bottom, top, color=one.colour, alpha=0.15, linewidth=0)
    marker = "." if len(curve.x) == 1 else None
    (line,) = axes.plot(
        curve.x, mean, color=one.colour, linewidth=one.width, linestyle=dashes, label=one.label, marker=marker
    )
    return line


REACH, DECADES = 1.8, 5
"""A panel of results goes this many times as far from the best as three quarters of its rows end; who ends beyond is named."""


def limits(curves: Sequence[tuple[Look, Curve]], higher: bool | None, every: bool = False) -> tuple[float, float]:
    """Room for the differences at the end, or for `every` row's. Perplexities are compared by their logarithms."""
    if higher is None:
        return log_limits(np.concatenate([y for _, curve in curves for y in (curve.low, curve.high)]))
    scaled = (lambda y: y) if higher else (lambda y: -np.log(y))
    late = [scaled(curve.mean[curve.x >= curve.x[-1] / 4]) for _, curve in curves]
    best = max(float(np.nanmax(scaled(curve.high if higher else curve.low))) for _, curve in curves)
    ends = sorted(float(y[-1]) for y in late)
    end = ends[0 if every else (len(ends) - 1) // 4]
    worst = max(min(float(y.min()) for y in late), best - REACH * (best - end))
    margin = 0.05 * (best - worst) or 0.05
    low, high = worst - margin, best + margin
    return (low, high) if higher else (float(np.exp(-high)), float(np.exp(-low)))


def log_limits(every: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Of LRs and losses: at most `DECADES`, without peaks a thousand times as high as the median."""
    positive = every[np.isfinite(every) & (every > 0)]
    if not len(positive):
        return 0.1, 1.0
    high = min(float(positive.max()), 1000 * float(np.median(positive)))
    low = max(float(positive.min()), high / 10**DECADES)
    margin = max((high / low) ** 0.05, 1.05)
    return low / margin, high * margin


def few_ticks(axes: Any, low: float, high: float) -> None:
    """1, 2 and 5 of each decade within two decades, else powers of ten."""
    axes.yaxis.set_minor_formatter(NullFormatter())
    if high < 6 * low:
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=(1, 2, 2.5, 5, 10)))
    elif high < 100 * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    if high < 100 * low:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def finish(axes: Any, title: str, x: str) -> None:
    """Words and grid."""
    axes.set_title(title, fontsize=TITLE)
    axes.set_xlabel(x, fontsize=LABEL)
    axes.tick_params(labelsize=TICK)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=(1, 2, 5, 10)))
    plain(axes)


def not_run(axes: Any, title: str) -> Handles:
    """An empty panel that says why."""
    axes.set_title(title, fontsize=TITLE)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("#CCCCCC")
    axes.text(
        0.5, 0.5, f"{results.NOT_RUN} yet", transform=axes.transAxes, ha="center", color="#777777", fontsize=LABEL
    )
    return {}
