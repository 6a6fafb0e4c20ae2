"""Ablation (Section 4.1.3, Fig. 5): the size of the schedule's network, and the LR of its Adam; CIFAR-10, ResNet-18.

The paper shows curves without numbers: all sizes and LRs end the same, small cells are slower at first.
"""

from mlrsnet_lab.recipes.rows import SCALES, SHORT, SMOKE, meta_trained
from mlrsnet_lab.sheets import Cell, Recipe

ARCHITECTURES = {
    "1 layer of 20": (1, 20),
    "1 layer of 50": (1, 50),
    "1 layer of 100": (1, 100),
    "2 layers of 50": (2, 50),
}
META_LRS = (1e-4, 1e-3, 1e-2)


def cells(scale: str) -> list[Cell]:
    """One table per question."""
    chosen = SCALES[scale]
    base = chosen.spec("cifar10", "resnet18")
    sizes = [
        Cell(row, "Architecture", meta_trained(base, chosen, layers=layers, hidden=hidden))
        for row, (layers, hidden) in ARCHITECTURES.items()
    ]
    lrs = [
        Cell(f"Adam at {lr:g}", "LR of the meta-optimizer", meta_trained(base, chosen, meta_lr=lr)) for lr in META_LRS
    ]
    return [*sizes, *lrs]


RECIPE = Recipe(
    "ablation",
    "Ablation: the schedule's network and its optimizer",
    "The result hardly depends on the size of the network, nor on the LR of the optimizer that trains it.",
    cells,
    notes={
        "all": ("The paper prints curves without numbers, and does not list all sizes and LRs; these are ours.",),
        "smoke": (SMOKE,),
        "short": (SHORT,),
    },
)
