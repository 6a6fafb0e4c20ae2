"""A figure: rows of panels under one legend; and the kinds of panels that several figures of the paper have."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.drawing import new, save
from experiments.figures.looks import LOOKS, among
from experiments.figures.panels import LEGEND, Alone, Bars, Handles, Line, Panel, lines, loss, lr, perplexity, recorded

WIDTH, COLUMNS = 8.5, 5
Drawable = Panel | Bars | Alone


@dataclass(frozen=True)
class Figure:
    """Rows of panels; None is where the legend goes, else it is below. `alt` is for those who cannot see it."""

    alt: str
    rows: Sequence[Sequence[Drawable | None]]
    height: float
    recipes: Sequence[str]
    widths: Sequence[float] | None = None

    def draw(self, out: Path) -> None:
        """The picture, whatever was run."""
        shape = (len(self.rows), len(self.rows[0]))
        figure, grid = new(*shape, (WIDTH, self.height), squeeze=False, width_ratios=self.widths)
        handles: Handles = {}
        place: Any = figure
        for panel, axes in zip((one for row in self.rows for one in row), grid.flat, strict=True):
            if panel is None:
                axes.set_axis_off()
                place = axes
            else:
                for name, handle in panel.draw(axes).items():
                    handles.setdefault(name, handle)
        names = sorted(handles, key=_order)
        if names:
            below: dict[str, Any] = {"loc": "outside lower center", "ncols": COLUMNS}
            how = below if place is figure else {"loc": "center"}
            place.legend([handles[name] for name in names], names, frameon=False, fontsize=LEGEND, **how)
        save(figure, out)

    @property
    def recorded(self) -> bool:
        """Whether any of its runs is kept."""
        return any(map(recorded, self.recipes))


def _order(name: str) -> int:
    """Methods as in `LOOKS`; others after them, as they come."""
    known = [look.label for look in LOOKS.values()]
    return known.index(name) if name in known else len(known)


def period(end: str) -> str:
    """In words, for a title.

    >>> period(""), period(", T_val 6")
    ('T_val 100', 'T_val 6')
    """
    return end.removeprefix(", ") or "T_val 100"


def trainings(recipe: str, column: str, task: str, rows: Iterable[str], text: bool) -> list[Panel]:
    """Training loss, test result and LR, as Figs. 3 and 4 have them."""
    found = lines(recipe, column, tuple(rows))
    if text:
        return [
            Panel(f"{task}: training perplexity", found, perplexity, higher=False),
            Panel("test perplexity", found, higher=False),
            Panel("LR", found, lr, higher=None),
        ]
    return [
        Panel(f"{task}: training loss", found, loss, higher=None),
        Panel("test accuracy (%)", found),
        Panel("LR", found, lr, higher=None),
    ]


def variants(title: str, recipe: str, column: str, rows: Mapping[str, str]) -> Panel:
    """Test accuracies of variants of one method, each under its own name."""
    found = [Line(recipe, column, row, among(place, name)) for place, (row, name) in enumerate(rows.items())]
    return Panel(title, found, own_legend=True)
