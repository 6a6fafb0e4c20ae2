"""How wide the minima are: the training loss along random rays from where trainings ended."""

from pathlib import Path
from statistics import mean
from typing import Any

from experiments import markdown, results, side_by_side
from experiments.drawing import new, plain, save
from experiments.side_by_side import Column
from mlrsnet_lab.report.numbers import number, short_text

FOLDER = "width_short"


def rays() -> list[str]:
    """The mean training loss over rays and seeds, by distance, and how much it grows."""
    columns = [column for column in side_by_side.find(FOLDER) if _measured(column)]
    if not columns:
        return results.NOTHING
    return [*(line for column in columns for line in _table(column)), "", *side_by_side.about(columns)]


def _table(column: Column) -> list[str]:
    measured = _measured(column)
    distances = next(iter(measured.values()))[0]["distance"]
    places = [place for place in range(len(distances)) if place % 2 == 0]
    heads = [f"training loss of {column.head}", *(f"at {distances[place]:g}" for place in places), "growth", "times"]
    return markdown.table(heads, [[row, *_cells(found, places)] for row, found in measured.items()])


def _cells(found: list[dict[str, Any]], places: list[int]) -> list[str]:
    losses = [_mean([number(ray[place]) for one in found for ray in one["train"]]) for place in places]
    first, last = losses[0], losses[-1]
    growth = ["", ""] if first is None or last is None else [f"{last - first:.2f}", f"{last / first:.1f}"]
    return [*("not finite" if loss is None else short_text(loss) for loss in losses), *growth]


def _measured(column: Column) -> dict[str, list[dict[str, Any]]]:
    """What was measured along rays, by row."""
    found = {row: [run.data["rays"] for run in runs if "rays" in run.data] for row, runs in column.runs.items()}
    return {row: measured for row, measured in found.items() if measured}


def _mean(values: list[float | None]) -> float | None:
    """None if the loss along a ray is not finite."""
    there = [value for value in values if value is not None]
    return mean(there) if len(there) == len(values) else None


LOOKS = {"Fixed": "#009E73", "MultiStep": "#E69F00", "SGDR": "#0072B2", "MLR-SNet": "#000000"}
TICKS = {"train": [0.1, 0.2, 0.5, 1, 2, 4], "test": [1, 1.5, 2, 3, 4]}


def draw(out: Path) -> None:
    """Training and test loss along every ray, one colour per schedule."""
    figure, panels = new(1, 2, (9, 3.2))
    for axes, (part, ticks) in zip(panels, TICKS.items(), strict=True):
        for row, colour in LOOKS.items():
            measured = results.run(FOLDER, "CIFAR-100", row).data["rays"]
            for number_of_ray, ray in enumerate(measured[part]):
                axes.plot(measured["distance"], ray, color=colour, linewidth=0.9, label=None if number_of_ray else row)
        axes.set(xlabel="distance from the solution", title=f"{part} loss", yscale="log")
        plain(axes)
        axes.minorticks_off()
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, frameon=False, fontsize=9, loc="outside lower center", ncols=4)
    save(figure, out)
