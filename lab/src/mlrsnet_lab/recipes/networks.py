"""Transfer to other networks (Section 4.2.4, Fig. 9): ShuffleNetV2, MobileNetV2 and NASNet on CIFAR-10.

The paper shows curves without numbers: the transferred schedule is comparable with the best hand-designed one, or better.
"""

from dataclasses import replace
from typing import Any

from mlrsnet_lab.recipes.rows import (
    CPU,
    CPU_BESIDE,
    SCALES,
    SHIPPED_NOTE,
    SHORT_TRANSFER,
    TRANSFERS,
    sources,
    transfer_cells,
)
from mlrsnet_lab.sheets import Cell, Recipe

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "ShuffleNetV2": ("shufflenetv2", {}),
    "MobileNetV2": ("mobilenetv2", {}),
    "NASNet": ("nasnet", {"cells": 4, "filters": 44}),  # the size of the repository that the paper names
}
SMALLEST: dict[str, Any] = {"cells": 1, "filters": 4}
NARROW: dict[str, Any] = {"cells": 1, "filters": 8}


def cells(scale: str) -> list[Cell]:
    """One meta-training with ResNet-18, then one table per network."""
    chosen, learned = TRANSFERS[scale], sources(SCALES[scale])
    found = [*learned]
    for column, (model, options) in NETWORKS.items():
        base = chosen.spec("cifar10", model, model_options=NARROW if options and scale == "cpu" else options)
        if scale == "smoke":  # the networks themselves, for one epoch of digits
            base = replace(base, model=model, epochs=1, model_options=SMALLEST if options else {})
        found += transfer_cells(base, chosen, column, learned)
    return found


RECIPE = Recipe(
    "networks",
    "Transfer to other networks",
    "The schedule that was learned with ResNet-18 is comparable with the best hand-designed one on networks of other kinds.",
    cells,
    notes={
        "smoke": ("Digits, one epoch and the smallest NASNet: this shows that everything works.",),
        "cpu": (*CPU, CPU_BESIDE, "ShuffleNetV2 at width 0.5, MobileNetV2 at 0.25, NASNet of 1 cell and 8 filters."),
        "short": (SHORT_TRANSFER, SHIPPED_NOTE),
        "paper": (SHIPPED_NOTE,),
    },
    stand_in=True,
)
