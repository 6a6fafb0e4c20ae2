"""Transfer to other networks (Section 4.2.4, Fig. 9): ShuffleNetV2, MobileNetV2 and NASNet on CIFAR-10.

The paper shows curves, no numbers: the transferred schedule is comparable with the best hand-designed one, or better.
"""

from mlrsnet.lab.recipes.base import Cell, Recipe
from mlrsnet.lab.recipes.rows import SCALES, SHORT, SMOKE, source, transfer_cells

NETWORKS = {"ShuffleNetV2": "shufflenetv2", "MobileNetV2": "mobilenetv2", "NASNet": "nasnet"}


def cells(scale: str) -> list[Cell]:
    """One meta-training with ResNet-18, then one table for each network."""
    chosen = SCALES[scale]
    learned = source(chosen)
    found = [learned]
    for column, model in list(NETWORKS.items())[: 1 if scale == "smoke" else None]:
        found += transfer_cells(chosen.spec("cifar10", model), chosen, column, learned)
    return found


RECIPE = Recipe(
    "networks",
    "Transfer to other networks",
    "The schedule that was learned with ResNet-18 is comparable with the best hand-designed one on networks of other kinds.",
    cells,
    notes={"smoke": (SMOKE,), "short": (SHORT,)},
    stand_in=True,
)
