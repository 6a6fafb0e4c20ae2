"""WideResNet-28-10 on CIFAR-100, Table 1's largest training, for 60 of its 200 epochs; not in the paper.

An epoch needs nine times the arithmetic of ResNet-18's. All but the horizon is Table 1's.
"""

from mlrsnet_lab.recipes.rows import SCALES, SHORT, cosine, default, hand_designed, meta_rows
from mlrsnet_lab.sheets import Cell, Recipe

COLUMN = "CIFAR-100, WideResNet-28-10"
ROWS = ("MultiStep", "SGDR")


def cells(scale: str) -> list[Cell]:
    """The paper's best rows on this network, Algorithm 1 with both T_val, a cosine and the default."""
    chosen = SCALES["short"]
    base = chosen.spec("cifar100", "wrn-28-10")
    rows = {row: spec for row, spec in hand_designed(base, chosen).items() if row in ROWS}
    rows |= meta_rows("MLR-SNet", base, chosen)
    return [*(Cell(row, COLUMN, spec) for row, spec in rows.items()), cosine(base, COLUMN), default(base, COLUMN)]


RECIPE = Recipe(
    "wrn",
    "WideResNet-28-10 for 60 epochs",
    "On its own network too, MLR-SNet is above the best hand-designed schedules.",
    cells,
    notes={"all": ("Not in the paper, which trains for 200 epochs.", SHORT)},
    scales=("paper",),
)
