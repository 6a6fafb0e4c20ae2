"""Schedules where they were not learned: other horizons, networks and data, beside hand-designed schedules."""

from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

from experiments import markdown, results, side_by_side
from experiments.drawing import new, plain, save
from experiments.side_by_side import Column
from mlrsnet.lab.recipes import epochs, networks, transfer
from mlrsnet.lab.recipes.rows import TRANSFERRED

FOLDERS = ("epochs_short", "networks_short", "transfer_short", "imagenet_short")
NAMES = {
    **{f"{horizon} epochs": "CIFAR-100, ResNet-18" for horizon in epochs.HORIZONS},
    **{network: f"CIFAR-10, {network}" for network in networks.NETWORKS},
    **{pictures: f"{pictures}, ResNet-18" for pictures in transfer.PICTURES},
}
"""Of columns whose own names say too little when several recipes stand side by side."""

LSTM = "Universal LSTM"


def columns() -> list[Column]:
    """Every transfer of which something was run, without the meta-trainings."""
    found = [column for folder in FOLDERS for column in side_by_side.find(folder) if TRANSFERRED in column.rows]
    return [replace(column, name=NAMES.get(column.name, column.name)) for column in found]


def transfers() -> list[str]:
    """Pictures, then text; then the distance of learned rows to the best hand-designed one, last with last, best with best."""
    tables = side_by_side.tables(columns(), every_row=True)
    return [*tables, *_against_the_best("last"), *_against_the_best("best")]


def shortfalls(which: str = "last") -> dict[str, dict[str, float]]:
    """By how much each learned row is worse than the best hand-designed one, by column and row; below 0 if it is better.

    `which` epochs are compared: the last ones, or the best ones, which are a choice made on test data.
    """
    found = {}
    for column in columns():
        rivals = by_hand(column)
        gaps = {row: column.shortfall(row, rivals, which) for row in column.runs if row not in rivals}
        found[column.title] = {row: gap for row, gap in gaps.items() if gap is not None}
    return found


def by_hand(column: Column) -> list[str]:
    """The hand-designed rows that were run."""
    return [row for row in column.runs if results.hand_designed(column.rows[row])]


def _against_the_best(which: str) -> list[str]:
    gaps = {title: found for title, found in shortfalls(which).items() if found}
    rows = list(dict.fromkeys(row for found in gaps.values() for row in found))
    if not rows:
        return []
    best = {column.title: column.best(by_hand(column), which) or "" for column in columns()}
    lines = (
        [title, best[title], *(side_by_side.difference(found.get(row)) for row in rows)]
        for title, found in gaps.items()
    )
    return ["", *markdown.table([f"{which} epochs, against the best hand-designed row", "which is", *rows], lines)]


LOOKS = {
    "Universal LSTM": ("#000000", 2.0),
    "Authors' checkpoints": ("#56B4E9", 1.4),
    "MLR-SNet, shipped": ("#CC79A7", 1.4),
    "MLR-SNet, shipped, from text": ("#D55E00", 1.4),
    "Universal LSTM, over Adam": ("#009E73", 1.4),
}
"""The other rows are hand-designed: the best of them, and the rest."""


def draw(out: Path) -> None:
    """Test results over epochs, seed 0."""
    found = columns()
    figure, panels = new(2, ceil(len(found) / 2), (12, 6.2))
    labels: dict[str, Any] = {}
    for column, axes in zip(found, panels.flat, strict=False):
        best = column.best(by_hand(column))
        for row, (run, *_) in sorted(column.runs.items(), key=lambda item: item[0] in LOOKS):
            other = ("best hand-designed", "#0072B2", 1.4) if row == best else ("other hand-designed", "#BBBBBB", 1.0)
            label, colour, width = (row, *LOOKS[row]) if row in LOOKS else other
            points = [(line["epoch"], line["test_metric"]) for line in run.epochs]
            (labels[label],) = axes.plot(*zip(*points, strict=True), color=colour, linewidth=width)
        _limits(axes, column)
        axes.set_title(f"{column.name}: {column.metric}", fontsize=9)
        plain(axes)
    for axes in panels[-1]:
        axes.set_xlabel("epoch")
    there = [name for name in (*LOOKS, "best hand-designed", "other hand-designed") if name in labels]
    handles = [labels[name] for name in there]
    figure.legend(handles, there, frameon=False, fontsize=9, loc="outside lower center", ncols=4)
    save(figure, out)


def _limits(axes: Any, column: Column) -> None:
    """Room for the differences at the end: the worst rows leave the picture."""
    ends = [end for row in column.runs if (end := column.mean(row)) is not None]
    if column.table.metric.higher_is_better:
        axes.set(ylim=(min(0.8 * max(ends), sorted(ends)[1] - 3), 1.02 * max(ends)))
        return
    axes.set(yscale="log", ylim=(0.95 * min(ends), 800))
    axes.set_yticks([100, 200, 400, 800], ["100", "200", "400", "800"])
    axes.minorticks_off()
