"""Transfer to other networks (Section 4.2.4, Fig. 9): ShuffleNetV2, MobileNetV2 and NASNet on CIFAR-10.

The paper shows curves without numbers: the transferred schedule is comparable with the best hand-designed one, or better.
"""

from dataclasses import replace
from typing import Any

from mlrsnet_lab.recipes.rows import (
    CPU,
    CPU_BESIDE,
    PAPER_EPOCHS,
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
SIZES: dict[str, dict[str, Any]] = {"smoke": {"cells": 1, "filters": 4}, "cpu": {"cells": 1, "filters": 8}}
"""Of NASNet, where it is not the paper's."""

EPOCHS = {"cpu": PAPER_EPOCHS / 3}
"""In the paper's epochs; these networks are several times as slow as the one that stands in for ResNet-18."""


def cells(scale: str) -> list[Cell]:
    """One meta-training with ResNet-18, then one table per network."""
    chosen, learned = TRANSFERS[scale], sources(SCALES[scale])
    found = [*learned]
    for column, (model, options) in NETWORKS.items():
        base = chosen.spec("cifar10", model, epochs=EPOCHS.get(scale, PAPER_EPOCHS))
        own = SIZES.get(scale, options) if options else {}
        base = replace(base, model=model, model_options=base.model_options | own)
        if scale == "smoke":  # the networks themselves, for one epoch of digits
            base = replace(base, epochs=1)
        found += transfer_cells(base, chosen, column, learned)
    return found


RECIPE = Recipe(
    "networks",
    "Transfer to other networks",
    "The schedule that was learned with ResNet-18 is comparable with the best hand-designed one on networks of other kinds.",
    cells,
    notes={
        "smoke": ("Digits, one epoch and the smallest NASNet: this shows that everything works.",),
        "cpu": (
            *CPU,
            CPU_BESIDE,
            "10 epochs, 1,400 steps. ShuffleNetV2 at width 0.5, MobileNetV2 at 0.25, NASNet of 1 cell and 8 filters.",
        ),
        "short": (SHORT_TRANSFER, SHIPPED_NOTE),
        "paper": (SHIPPED_NOTE,),
    },
    stand_in=True,
)
