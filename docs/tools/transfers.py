"""What a schedule comes to where it was not learned: other horizons, networks and data, beside hand-designed schedules."""

from dataclasses import replace

import beside
import paper

from mlrsnet.lab.recipes import epochs, networks, transfer
from mlrsnet.lab.recipes.rows import TRANSFERRED
from mlrsnet.lab.report.numbers import metric_text

RECIPES = ("epochs", "networks", "transfer", "imagenet")
NAMES = {
    **{f"{horizon} epochs": "CIFAR-100, ResNet-18" for horizon in epochs.HORIZONS},
    **{network: f"CIFAR-10, {network}" for network in networks.NETWORKS},
    **{pictures: f"{pictures}, ResNet-18" for pictures in transfer.PICTURES},
}
"""Of columns whose own names say too little where several recipes stand side by side."""


def columns() -> list[beside.Column]:
    """Every transfer of which something was run; the meta-trainings are not among them."""
    found = [column for recipe in RECIPES for column in beside.find(recipe, "short") if TRANSFERRED in column.cells]
    return [replace(column, name=NAMES.get(column.name, column.name)) for column in found]


def transfers() -> list[str]:
    """Pictures, then text; then how far what was learned is from the best of what was not."""
    return [*beside.tables(columns(), every_row=True), *_against_the_best()]


def shortfalls() -> dict[str, dict[str, float]]:
    """By how much each learned row is worse than the best hand-designed one, by column and row; below 0 where it is better."""
    found = {}
    for column in columns():
        rivals = by_hand(column)
        gaps = {row: column.shortfall(row, rivals) for row in column.runs if row not in rivals}
        found[column.title] = {row: gap for row, gap in gaps.items() if gap is not None}
    return found


def by_hand(column: beside.Column) -> list[str]:
    """The rows that nobody had to learn, as far as they were run."""
    return [row for row, runs in column.runs.items() if paper.by_hand(runs[0])]


def _against_the_best() -> list[str]:
    gaps = {title: found for title, found in shortfalls().items() if found}
    rows = list(dict.fromkeys(row for found in gaps.values() for row in found))
    if not rows:
        return []
    best = {column.title: column.best(by_hand(column)) for column in columns()}
    lines = [
        f"| against the best hand-designed row | which is | {' | '.join(rows)} |",
        f"| --- | --- |{' --- |' * len(rows)}",
    ]
    lines += [
        f"| {title} | {best[title]} | {' | '.join(_said(found.get(row)) for row in rows)} |"
        for title, found in gaps.items()
    ]
    return ["", *lines]


def _said(gap: float | None) -> str:
    return "" if gap is None else f"{metric_text(abs(gap))} {'worse' if gap > 0 else 'better'}"
