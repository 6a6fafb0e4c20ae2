"""Width of the minima (Section 5.3, Fig. 11c): loss along random rays from the solutions; CIFAR-100, ResNet-18.

The paper shows curves without numbers: MLR-SNet and the good hand-designed schedules end in wide, flat regions of the training
loss.
"""

from dataclasses import replace

from mlrsnet_lab.recipes.rows import CPU, SCALES, SHORT, SMOKE, default, hand_designed, meta_rows
from mlrsnet_lab.sheets import Cell, Recipe

RAYS = {"smoke": 2, "cpu": 3, "short": 5, "paper": 10}


def cells(scale: str) -> list[Cell]:
    """Table 1's schedules; each measures rays at the end."""
    chosen = SCALES[scale]
    base = replace(chosen.spec("cifar100", "resnet18"), rays=RAYS[scale])
    rows = {**hand_designed(base, chosen), **meta_rows("MLR-SNet", base, chosen)}
    found = [Cell(row, "CIFAR-100", spec) for row, spec in rows.items()]
    return [replace(cell, seeds=1) for cell in (*found, default(base, "CIFAR-100"))] if scale == "cpu" else found


RECIPE = Recipe(
    "width",
    "Width of the minima",
    "The solutions of MLR-SNet and of the good hand-designed schedules lie in wide, flat regions of the training loss.",
    cells,
    notes={
        "all": (
            "Look at the losses along random rays below the table: the mean over rays, at distances from 0 to 20.",
        ),
        "smoke": (SMOKE,),
        "cpu": (*CPU, "One seed, three rays."),
        "short": (SHORT,),
    },
    stand_in=True,
)
