"""The demo: a schedule learned on the digits 0 to 4 drives small CNNs on the digits 5 to 9; not in the paper.

Algorithm 1 learns while a small CNN trains. What it leaves, and the shipped default, have nothing to tune; every hand-designed
schedule has the LR of five that is best on validation data.
"""

from dataclasses import replace
from typing import Any

from mlrsnet_lab.recipes.rows import META_ROW, TRANSFERRED, WARMUP, named, transferred
from mlrsnet_lab.sheets import Cell, Choice, Recipe
from mlrsnet_lab.spec import RunSpec

LEARNING, COLUMN = "Learning on the digits 0 to 4", "Digits 5 to 9"
LR_GRID = (0.1, 0.3, 1.0, 3.0, 10.0)
HAND_DESIGNED: dict[str, dict[str, Any]] = {
    "Fixed": {"schedule": "fixed"},
    "MultiStep": {"schedule": "multistep"},
    "Exponential": {"schedule": "exponential"},
    "SGDR, three cycles": {"schedule": "sgdr", "schedule_options": {"first_cycle": 1 / 7}},
    "Cosine": {"schedule": "cosine", "schedule_options": WARMUP},
    "Linear": {"schedule": "linear", "schedule_options": WARMUP},
}


def cells(scale: str) -> list[Cell]:
    """The same at every scale."""
    base = RunSpec(task="digits", model="small_cnn", batch_size=32, epochs=10)
    options = {"every": 5, "name": "digits 0-4"}
    learning = replace(base, task_options={"classes": [0, 1, 2, 3, 4]}, epochs=40, schedule="mlr-snet")
    digits = replace(base, task_options={"classes": [5, 6, 7, 8, 9]})
    lr = Choice("lr", LR_GRID, digits.epochs)
    return [
        Cell(META_ROW, LEARNING, replace(learning, schedule_options=options)),
        *(Cell(row, COLUMN, replace(digits, **fields), choice=lr) for row, fields in HAND_DESIGNED.items()),
        Cell(TRANSFERRED, COLUMN, transferred(digits), learned_in=(META_ROW, LEARNING)),
        named("The default", COLUMN, digits, "universal"),
    ]


RECIPE = Recipe(
    "demo",
    "The demo: learned on some digits, used on others",
    "A schedule that was learned elsewhere needs no LR.",
    cells,
    seeds=(0, 1, 2, 3, 4),
    for_cpu=("smoke", "short", "paper"),
    notes={
        "all": (
            "Not in the paper. Every row trains on the same digits from the same weights in the same order.",
            f"Hand-designed schedules have the initial LR of {', '.join(f'{lr:g}' for lr in LR_GRID)} that is best on validation "
            "data with the first seed.",
            "About 150 test images cannot separate methods that are close.",
        )
    },
    scales=("smoke", "short", "paper"),
)
