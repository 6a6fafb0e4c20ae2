"""Table 2 (Section 4.1.1): Table 1's tasks, with momentum 0.9 for the baselines; MLR-SNet is still over plain SGD.

The paper reports 95.08 (MultiStep) and 80.93 (SGDR) as the best, MLR-SNet 94.80 and 80.44.
"""

from mlrsnet_lab.recipes import table1
from mlrsnet_lab.recipes.rows import CPU, CPU_BESIDE, SCALES, SHORT, SMOKE, Paper
from mlrsnet_lab.sheets import Cell, Recipe

PAPER: dict[str, Paper] = {
    "CIFAR-10": {
        "Fixed": (87.69, 0.14),
        "MultiStep": (95.08, 0.13),
        "Exponential": (94.64, 0.05),
        "SGDR": (95.06, 0.17),
        "Adam": (90.86, 0.15),
        "L4": (91.03, 0.14),
        "HD": (93.99, 0.12),
        "RTHO": (93.17, 0.49),
        "MLR-SNet": (94.80, 0.10),
    },
    "CIFAR-100": {
        "Fixed": (70.88, 0.12),
        "MultiStep": (80.74, 0.19),
        "Exponential": (78.87, 0.04),
        "SGDR": (80.93, 0.05),
        "Adam": (68.94, 0.24),
        "L4": (66.51, 2.83),
        "HD": (76.80, 0.19),
        "RTHO": (76.14, 0.29),
        "MLR-SNet": (80.44, 0.17),
    },
}


def cells(scale: str) -> list[Cell]:
    """Table 1's, with momentum."""
    found = table1.accuracy_cells(scale, SCALES[scale], PAPER, momentum=True)
    return [*found, *table1.beside_on_cpu(found, momentum=True)] if scale == "cpu" else found


RECIPE = Recipe(
    "table2",
    "Table 2: test accuracy with SGDM baselines",
    "With momentum the baselines gain much; MLR-SNet over plain SGD stays within 0.5 of the best of them.",
    cells,
    paper_setting=table1.RECIPE.paper_setting,
    notes={
        "all": (
            *table1.RECIPE.notes["all"],
            "L4 is L4Mom here, its authors' momentum form: it averages gradients over 10 steps (beta1 = 0.9).",
        ),
        "smoke": (SMOKE,),
        "cpu": (*CPU, CPU_BESIDE),
        "short": (SHORT, "On CIFAR-100 ResNet-18 stands in for WideResNet-28-10."),
    },
    stand_in=True,
)
