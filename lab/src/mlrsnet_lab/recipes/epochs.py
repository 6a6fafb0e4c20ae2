"""Transfer to other horizons (Section 4.2.2, Fig. 7): CIFAR-100, ResNet-18, 100, 400 and 1,200 epochs.

The paper shows curves without numbers: a schedule meta-trained for 200 epochs is as good as MultiStep at every horizon.
"""

from dataclasses import replace

from mlrsnet_lab.recipes.rows import CPU, CPU_BESIDE, SCALES, SHIPPED_NOTE, SHORT, SMOKE, sources, transfer_cells
from mlrsnet_lab.sheets import Cell, Recipe

HORIZONS = (100, 400, 1200)


def cells(scale: str) -> list[Cell]:
    """One meta-training, then one table per horizon. The smoke scale leaves out the longest."""
    chosen = SCALES[scale]
    learned = sources(chosen)
    found = [*learned]
    for horizon in HORIZONS[:2] if scale == "smoke" else HORIZONS:
        base = chosen.spec("cifar100", "resnet18", epochs=horizon)
        cells = transfer_cells(base, chosen, f"{horizon} epochs", learned)
        found += [replace(cell, seeds=1) for cell in cells] if scale == "cpu" and horizon == HORIZONS[-1] else cells
    return found


RECIPE = Recipe(
    "epochs",
    "Transfer to other horizons",
    "The transferred schedule is as good as the best hand-designed one, MultiStep, whatever the horizon.",
    cells,
    notes={
        "all": (
            "The hand-designed schedules have momentum 0.9, the transferred one drives plain SGD, as in the paper.",
            "Exponential multiplies by the same factor per epoch at every horizon, as in the paper.",
        ),
        "smoke": (SMOKE,),
        "cpu": (*CPU, CPU_BESIDE, "The paper's 200 epochs are 14 here; the longest horizon has one seed."),
        "short": (SHORT, SHIPPED_NOTE),
        "paper": (SHIPPED_NOTE,),
    },
    stand_in=True,
)
