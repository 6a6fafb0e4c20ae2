"""Ablation (Section 4.1.3, Fig. 5): the size of the schedule's network, and the LR of its Adam; CIFAR-10, ResNet-18.

The paper shows curves without numbers: all sizes and LRs end the same, small cells are slower at first.
"""

from typing import Any

from mlrsnet_lab.recipes.rows import CPU, SCALES, SHORT, SMOKE, Scale, default, meta_trained
from mlrsnet_lab.sheets import Cell, Recipe

ARCHITECTURES = {
    "1 layer of 20": (1, 20),
    "1 layer of 50": (1, 50),
    "1 layer of 100": (1, 100),
    "2 layers of 50": (2, 50),
}
META_LRS = (1e-4, 1e-3, 1e-2)
PAPER_SIZE, PAPER_LR = (1, 50), 1e-3
"""What a meta-training has that is told nothing: its run is Table 1's."""


def cells(scale: str) -> list[Cell]:
    """One table per question."""
    chosen = SCALES[scale]
    periods = chosen.for_transfer if scale == "cpu" else {"": chosen}
    return [cell for end, one in periods.items() for cell in _cells(one, end)]


def _cells(chosen: Scale, end: str) -> list[Cell]:
    base = chosen.spec("cifar10", "resnet18")
    sizes: dict[str, dict[str, Any]] = {
        row: {} if (layers, hidden) == PAPER_SIZE else {"layers": layers, "hidden": hidden}
        for row, (layers, hidden) in ARCHITECTURES.items()
    }
    lrs: dict[str, dict[str, Any]] = {f"Adam at {lr:g}": {} if lr == PAPER_LR else {"meta_lr": lr} for lr in META_LRS}
    asked = {f"Architecture{end}": sizes, f"LR of the meta-optimizer{end}": lrs}
    found = [
        Cell(row, column, meta_trained(base, chosen, **options))
        for column, rows in asked.items()
        for row, options in rows.items()
    ]
    return [*found, *(default(base, column) for column in asked)] if chosen.small else found


RECIPE = Recipe(
    "ablation",
    "Ablation: the schedule's network and its optimizer",
    "The result hardly depends on the size of the network, nor on the LR of the optimizer that trains it.",
    cells,
    notes={
        "all": ("The paper prints curves without numbers, and does not list all sizes and LRs; these are ours.",),
        "smoke": (SMOKE,),
        "cpu": CPU,
        "short": (SHORT,),
    },
)
