"""Which LR suits the network that scale cpu trains: fixed LRs and cosines from a grid; not in the paper.

The paper's LR of 0.1 may be far from the best one of so short a training, which would handicap every row that has it. Recipes at
scale cpu keep 0.1; where it is too low, they have rows at a better one beside.
"""

from dataclasses import replace

from mlrsnet_lab.recipes.rows import CPU, SCALES, SMOKE, WARMUP, cosine, with_momentum
from mlrsnet_lab.sheets import Cell, Recipe

LRS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
MOMENTUM_LRS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def cells(scale: str) -> list[Cell]:
    """One column without momentum, and one with it."""
    chosen = SCALES[scale]
    base = chosen.spec("cifar10", "resnet18")
    found = []
    for lr in LRS:
        found.append(Cell(f"Fixed {lr:g}", "SGD", replace(base, schedule="fixed", lr=lr)))
        found.append(cosine(replace(base, lr=lr), "SGD", f"Cosine {lr:g}"))
    moving = with_momentum(base, chosen)
    for lr in MOMENTUM_LRS:
        spec = replace(moving, schedule="cosine", schedule_options=WARMUP, lr=lr)
        found.append(Cell(f"Cosine {lr:g}", "SGD with momentum", spec))
    return found


RECIPE = Recipe(
    "grid",
    "The LR of the network that stands in for ResNet-18 at scale cpu",
    "Its best LR is near the paper's 0.1.",
    cells,
    notes={
        "all": ("Not in the paper. Choose an LR by its validation accuracy; all are shown.",),
        "smoke": (SMOKE,),
        "cpu": CPU[:1],
    },
    seeds=(0,),
    scales=("smoke", "cpu"),
)
