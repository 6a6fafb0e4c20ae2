"""Transfer to ImageNet (Section 4.2.5, Fig. 11a): ResNet-50, 90 epochs of batch 256, SGDM from 0.1, weight decay 5e-4.

MultiStep and Adam divide by 10 every 30 epochs, Exponential multiplies by 0.95 per epoch. The paper shows curves without numbers:
the transferred schedule, over plain SGD, is competitive. Needs the real ImageNet in a folder.
"""

from dataclasses import replace
from typing import Any

from mlrsnet_lab.recipes.rows import SCALES, SHIPPED_NOTE, SMOKE, sources, transfer_cells
from mlrsnet_lab.sheets import Cell, Recipe

EPOCHS, STEPS = 90, (1 / 3, 2 / 3)
COLUMN = "ImageNet, ResNet-50"


def cells(scale: str) -> list[Cell]:
    """One meta-training on CIFAR-10, then ImageNet."""
    chosen = SCALES[scale]
    learned = sources(chosen)
    base = chosen.spec("imagenet", "resnet50", epochs=EPOCHS)
    if chosen.stand_in is None:
        base = replace(base, batch_size=256)
    steps = {"milestones": STEPS}
    changes: dict[str, dict[str, Any]] = {
        "MultiStep": {"schedule_options": steps},
        "Adam": {"schedule": "multistep", "schedule_options": steps},
    }
    return [
        *learned,
        *(
            cell if cell.spec is None else replace(cell, spec=replace(cell.spec, **changes.get(cell.row, {})))
            for cell in transfer_cells(base, chosen, COLUMN, learned)
        ),
    ]


RECIPE = Recipe(
    "imagenet",
    "Transfer to ImageNet",
    "A schedule learned on CIFAR-10 is competitive with the hand-designed ones on ImageNet, at no extra cost.",
    cells,
    notes={"smoke": (SMOKE,), "short": ("27 of 90 epochs.", SHIPPED_NOTE), "paper": (SHIPPED_NOTE,)},
    stand_in=True,
    scales=("smoke", "short", "paper"),
)
