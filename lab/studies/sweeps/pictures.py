"""One picture for each source, drawn from its record."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from lab.studies.sweeps.records import read

OURS, BEST = "tab:red", "tab:blue"


def step_law(path: Path) -> None:
    """Best r of each cell beside the law before, and beside the law: two sources that it saw, and one that was sealed."""
    known, sealed = read("steplaw"), read("schaipp")["followed"]["cells"]
    kinds = {
        "Step Law, dense": (known["dense, followed"]["cells"], BEST, "."),
        "Step Law, mixtures of experts": (known["experts, followed"]["cells"], "tab:orange", "."),
        "sealed: 124 million weights": (sealed, "black", "x"),
    }
    figure, (left, right) = _new(1, 2, (9, 4), sharey=True, sharex=True)
    for axes, law in ((left, "before"), (right, "law")):
        for name, (cells, colour, marker) in kinds.items():
            some = _inside(cells)
            axes.plot(
                [one[law] for one in some],
                [one["best"] for one in some],
                marker,
                color=colour,
                label=name,
                markersize=5,
            )
        _diagonal(axes, [one[key] for cells, *_ in kinds.values() for one in cells for key in ("law", "before")])
        _logs(
            axes, "r of the law before" if axes is left else "r of the law", "best r, followed" if axes is left else ""
        )
    left.legend(fontsize=8, frameon=False)
    _save(figure, path)


def deberta(path: Path) -> None:
    """The share of fine-tunings that fail, and the median accuracy, by LR."""
    record = read("deberta")["models"]
    figure, (top, bottom) = _new(2, 1, (7, 4.8), sharex=True)
    for model, colour in zip(record, (BEST, "tab:orange"), strict=True):
        parts = record[model]["by LR"]
        middles = [(part["from"] * part["to"]) ** 0.5 for part in parts]
        top.plot(
            middles, [100 * part["failed 0.6"] / part["trainings"] for part in parts], "o-", color=colour, label=model
        )
        bottom.plot(middles, [100 * part["accuracy"] for part in parts], "o-", color=colour)
        rules = {rule["rule"]: rule["lr"] for rule in record[model]["rules"]}
    for axes in (top, bottom):
        for rule, colour in (("the law, as if new", OURS), ("the law", OURS), ("a distance of 0.03", "tab:green")):
            axes.axvline(rules[rule], color=colour, linestyle="--", linewidth=1)
        _logs(axes, "", "", y=False)
    for rule, side in (("the law, as if new", "right"), ("the law", "left"), ("a distance of 0.03", "right")):
        top.text(rules[rule] * (0.95 if side == "right" else 1.05), 60, rule, ha=side, va="top", fontsize=8)
    top.set_ylabel("fail (%)")
    bottom.set(ylabel="median accuracy (%)", ylim=(84, 91), xlabel="LR")
    top.legend(fontsize=8, frameon=False, loc="upper left")
    _save(figure, path)


def adapters(path: Path) -> None:
    """Best r of adapters by batch, rank and number of examples; CLIP's errors by LR."""
    cells = _inside(read("lora")["Gemma"]["cells"])
    figure, (left, middle, right) = _new(1, 3, (11, 3.6))
    for group, some in _by_group([one for one in cells if "table" in one["name"]]).items():
        left.plot(
            [one["batch"] for one in some], [one["best"] for one in some], "o-", label=group.removeprefix("Adapters, ")
        )
    left.plot(*_law([one for one in cells if one["group"] == "Adapters, PiSSA"], "batch"), label="the law")
    left.legend(fontsize=8, frameon=False)
    ranks = sorted((one for one in cells if one["group"] == "Adapters, LoRA" and one["steps"] == 1562.5), key=_weights)
    middle.plot([_weights(one) for one in ranks], [one["best"] for one in ranks], "o-", color=BEST)
    middle.plot(*_law(ranks, "size"), label="the law")
    middle.legend(fontsize=8, frameon=False)
    _logs(left, "batch (100,000 examples)", "best r")
    _logs(middle, "weights of the adapters, batch 64", "best r of LoRA")
    (clip,) = read("clip")["cells"]
    curve = np.array(clip["curve"])
    right.plot(curve[:, 0], 100 * curve[:, 1], "o-", color=BEST)
    right.axvline(clip["law"], color=OURS, linestyle="--")
    right.text(clip["law"] * 0.9, 100 * curve[:, 1].max(), "the law", color=OURS, fontsize=8, ha="right")
    _logs(right, "r, weights of 0.03 assumed", "error of a fine-tuned CLIP (%)", y=False)
    _save(figure, path)


DRAW: dict[str, Callable[[Path], None]] = {
    "sweeps_steplaw.png": step_law,
    "sweeps_deberta.png": deberta,
    "sweeps_adapters.png": adapters,
}


def _new(rows: int, columns: int, size: tuple[float, float], **how: Any) -> tuple[Figure, Any]:
    matplotlib.use("Agg")
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, **how)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _logs(axes: Any, x: str, y_label: str, y: bool = True) -> None:
    axes.set(xscale="log", xlabel=x, ylabel=y_label, **({"yscale": "log"} if y else {}))
    for axis in (axes.xaxis, *([axes.yaxis] if y else [])):
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 30 * low else (1,)))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def _diagonal(axes: Any, values: Iterable[float]) -> None:
    ends = [min(values := list(values)), max(values)]
    axes.plot(ends, ends, color=OURS, linewidth=1)
    axes.text(ends[1], ends[1] * 0.8, "best = law", color=OURS, fontsize=8, ha="right", va="top")


def _inside(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in cells if one["best"] is not None]


def _by_group(cells: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for one in sorted(cells, key=lambda one: one["steps"]):
        found.setdefault(one["group"], []).append(one)
    return found


def _law(cells: list[dict[str, Any]], fact: str) -> tuple[list[float], list[float], str]:
    return [one[fact] for one in cells], [one["law"] for one in cells], "r--"


def _weights(one: dict[str, Any]) -> float:
    return float(one["size"])
