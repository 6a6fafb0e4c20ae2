"""A schedule learned from whole small trainings against tuned cosine and linear; not in the paper.

`cifar10-patches` was learned on small patch networks on CIFAR-10's training pictures at 16x16
(`mlrsnet metatrain --objective horizon --task cifar10`); here it drives a network that it has never seen, without tuning. The
decays warm up over 5 % of the training and end at 0, from each LR of a grid. Plain SGD, batch 128, weight decay 5e-4.
"""

from mlrsnet_lab.recipes.rows import decays, named
from mlrsnet_lab.sheets import Cell, Recipe
from mlrsnet_lab.spec import RunSpec

SCHEDULE = "cifar10-patches"
GRID = (0.05, 0.1, 0.2, 0.5, 1.0)
SCALES = {
    "smoke": ("Digits", RunSpec(task="digits", model="small_cnn", epochs=5, batch_size=32)),
    "short": ("CIFAR-10", RunSpec(task="cifar10", model="resnet18", epochs=30, batch_size=128)),
    "paper": ("CIFAR-10", RunSpec(task="cifar10", model="resnet18", epochs=200, batch_size=128)),
}


def cells(scale: str) -> list[Cell]:
    """The learned schedule, and both decays at every LR of the grid."""
    column, base = SCALES[scale]
    rows = decays(base, {f"{lr:g}": lr for lr in GRID})
    return [named("Full horizon", column, base, SCHEDULE), *(Cell(row, column, spec) for row, spec in rows.items())]


RECIPE = Recipe(
    "horizon",
    "Learned from whole trainings, against tuned cosine and linear",
    "A schedule learned on small trainings drives a network it has never seen at least as well as hand-designed schedules "
    "whose LR was tuned on that network.",
    cells,
    notes={
        "all": (
            "Not in the paper. Every row trains on the same pictures. Those held out for validation are never trained on, and were "
            "not when the schedule was learned.",
            "Choose a decay's LR by its validation accuracy; all are shown.",
        ),
        "smoke": (
            "The embedded digits and a small CNN stand in for CIFAR-10 and ResNet-18: this shows that everything works.",
        ),
        "paper": ("At the paper's 200 epochs.",),
    },
    scales=("smoke", "short", "paper"),
)
