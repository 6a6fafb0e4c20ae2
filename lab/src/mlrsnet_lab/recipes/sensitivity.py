"""When Algorithm 1 works: T_val, the meta-optimizer's LR, held-out or leaky data and the cell, one at a time; CIFAR-10, ResNet-18.

Not in the paper, which says of T_val only that it is 100 (the authors' code: 300), and that the meta LR hardly matters (Fig. 5).
T_val is not scaled with the horizon: the question is what this many meta-updates do to a training.
"""

from dataclasses import replace
from typing import Any

from mlrsnet_lab.recipes.rows import PAPER_EVERY, SCALES, SMOKE, meta_trained
from mlrsnet_lab.sheets import Cell, Recipe

EPOCHS = {"smoke": 10, "short": 30, "paper": 200}
PERIODS = {"smoke": (3, 10), "short": (3, 15, 100, 300), "paper": (3, 15, 100, 300)}
EVERY = {"smoke": 10, "short": PAPER_EVERY, "paper": PAPER_EVERY}
META_LRS = (1e-4, 1e-2)
LEAKY, CELL = "leaky", "the authors' cell"


def cells(scale: str) -> list[Cell]:
    """The paper's setting, its neighbours, and two hand-designed schedules."""
    chosen, every = SCALES[scale], EVERY[scale]
    base = replace(chosen.spec("cifar10", "resnet18"), epochs=EPOCHS[scale])
    options: dict[str, dict[str, Any]] = {
        **{f"T_val {period}": {"every": period} for period in PERIODS[scale]},
        **{f"meta LR {lr:g}": {"every": every, "meta_lr": lr} for lr in META_LRS},
        CELL: {"every": every, "compat": ["layout"]},
    }
    column = "Digits" if scale == "smoke" else "CIFAR-10"
    found = [Cell(row, column, meta_trained(base, chosen, **own)) for row, own in options.items()]
    leaky = replace(meta_trained(base, chosen, every=every), task_options={"leaky": True})
    hand_designed = {name: replace(base, schedule=name.lower()) for name in ("MultiStep", "Cosine")}
    return [*found, Cell(LEAKY, column, leaky), *(Cell(row, column, spec) for row, spec in hand_designed.items())]


RECIPE = Recipe(
    "sensitivity",
    "When Algorithm 1 works",
    "The paper sets T_val to 100 everywhere, and finds that the LR of the meta-optimizer hardly matters.",
    cells,
    notes={
        "all": (
            "Not a table of the paper. All but the named setting are its own: T_val 100, Adam at 0.001, its cell, validation "
            "pictures that are held out.",
        ),
        "smoke": (SMOKE, "T_val 10 for 100."),
        "short": ("30 of 200 epochs; T_val is not scaled.",),
    },
    scales=("smoke", "short", "paper"),
)
