"""What a schedule comes to where it was not learned: other horizons, networks and data, beside hand-designed schedules."""

from dataclasses import replace

import beside

from mlrsnet.lab.recipes import epochs, networks, transfer
from mlrsnet.lab.recipes.rows import READY_MADE, SHIPPED, TRANSFERRED
from mlrsnet.lab.report.numbers import metric_text

RECIPES = ("epochs", "networks", "transfer", "imagenet")
LEARNED = (TRANSFERRED, SHIPPED, *READY_MADE, transfer.FROM_TEXT, transfer.OVER_ADAM)
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
    gaps = {head: found for head, found in shortfalls().items() if found}
    lines = [f"{head}, against the best hand-designed row: {_said(found)}." for head, found in gaps.items()]
    return [*beside.tables(columns(), every_row=True), *lines]


def shortfalls() -> dict[str, dict[str, float]]:
    """By how much each learned row is worse than the best hand-designed one, by column and row; below 0 where it is better."""
    return {
        column.head: {
            row: gap
            for row in LEARNED
            if (gap := column.shortfall(row, [rival for rival in column.cells if rival not in LEARNED])) is not None
        }
        for column in columns()
    }


def _said(gaps: dict[str, float]) -> str:
    return "; ".join(
        f"{row} {'worse' if gap > 0 else 'better'} by {metric_text(abs(gap))}" for row, gap in gaps.items()
    )
