"""Table 2 (Section 4.1.1): Table 1's tasks, the baselines with momentum 0.9; MLR-SNet is still over plain SGD.

The paper reports 95.08 (MultiStep) and 80.93 (SGDR) as the best, MLR-SNet 94.80 and 80.44.
"""

from mlrsnet.lab.recipes.base import Cell, Recipe
from mlrsnet.lab.recipes.rows import SCALES, SHORT, SMOKE, hand_designed, meta_trained

PAPER: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "Fixed": ((87.69, 0.14), (70.88, 0.12)),
    "MultiStep": ((95.08, 0.13), (80.74, 0.19)),
    "Exponential": ((94.64, 0.05), (78.87, 0.04)),
    "SGDR": ((95.06, 0.17), (80.93, 0.05)),
    "Adam": ((90.86, 0.15), (68.94, 0.24)),
    "MLR-SNet": ((94.80, 0.10), (80.44, 0.17)),
}
COLUMNS = (("CIFAR-10", "cifar10", "resnet18"), ("CIFAR-100", "cifar100", "wrn-28-10"))


def cells(scale: str) -> list[Cell]:
    """Every row on both tasks; the smoke scale has one task, the short one ResNet-18 on both."""
    chosen, found = SCALES[scale], []
    for place, (column, task, model) in enumerate(COLUMNS[:1] if scale == "smoke" else COLUMNS):
        base = chosen.spec(task, "resnet18" if scale == "short" else model)
        rows = {**hand_designed(base, chosen, momentum=True), "MLR-SNet": meta_trained(base, chosen)}
        found += [Cell(row, column, spec, PAPER[row][place]) for row, spec in rows.items()]
    return found


RECIPE = Recipe(
    "table2",
    "Table 2: test accuracy with SGDM baselines",
    "With momentum the baselines gain much; MLR-SNet over plain SGD stays within 0.5 of the best of them.",
    cells,
    paper_setting={"smoke": "CIFAR-10, 200 epochs", "short": "200 epochs, its own networks"},
    notes={"smoke": (SMOKE,), "short": (SHORT, "On CIFAR-100 ResNet-18 stands in for WideResNet-28-10.")},
)
