"""A schedule learned from whole small trainings against tuned cosine and linear; not in the paper.

`cifar10-patches` was learned on small patch networks on CIFAR-10's training pictures at 16x16
(`mlrsnet metatrain --objective horizon --task cifar10`); here it drives a network that it has never seen, without tuning. The
decays warm up over 5 % of the training and end at 0, from each LR of a grid. Plain SGD, batch 128, weight decay 5e-4.
"""

from dataclasses import dataclass, replace

from mlrsnet_lab.recipes.rows import WARMUP
from mlrsnet_lab.sheets import Cell, Recipe
from mlrsnet_lab.spec import RunSpec

SCHEDULE = "cifar10-patches"
KINDS = ("cosine", "linear")
GRID = (0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Setup:
    """What a scale changes."""

    column: str
    task: str
    model: str
    epochs: int
    batch_size: int = 128


SCALES = {
    "smoke": Setup("Digits", "digits", "small_cnn", epochs=5, batch_size=32),
    "short": Setup("CIFAR-10", "cifar10", "resnet18", epochs=30),
    "paper": Setup("CIFAR-10", "cifar10", "resnet18", epochs=200),
}


def cells(scale: str) -> list[Cell]:
    """The learned schedule, and both decays at every LR of the grid."""
    chosen = SCALES[scale]
    base = RunSpec(task=chosen.task, model=chosen.model, epochs=chosen.epochs, batch_size=chosen.batch_size)
    learned = replace(base, schedule="learned", schedule_options={"schedule": SCHEDULE})
    decays = {
        f"{kind.capitalize()} {lr:g}": replace(base, schedule=kind, schedule_options=WARMUP, lr=lr)
        for kind in KINDS
        for lr in GRID
    }
    return [Cell(row, chosen.column, spec) for row, spec in {"Full horizon": learned, **decays}.items()]


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
)
