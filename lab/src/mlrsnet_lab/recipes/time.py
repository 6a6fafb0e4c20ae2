"""Computing time (Section 5.2, Fig. 11b): seconds per epoch of every method; CIFAR-10, ResNet-18.

The paper shows bars without numbers: all methods cost about the same, except RTHO, which costs much more.
"""

from dataclasses import replace

from mlrsnet_lab.recipes.rows import (
    CPU,
    HYPER_LRS,
    META_ROW,
    SCALES,
    SMOKE,
    TRANSFERRED,
    default,
    hand_designed,
    meta_trained,
    transferred,
)
from mlrsnet_lab.sheets import Cell, Recipe

EPOCHS = {"smoke": 2, "cpu": 2, "short": 3, "paper": 5}
"""At scale cpu other than those of trials: a copy of one would bring its seconds along."""

TRAINED = {"smoke": "smoke", "cpu": "cpu", "short": "paper", "paper": "paper"}
"""T_val is 100, which is what costs."""

COLUMN = "CIFAR-10"


def cells(scale: str) -> list[Cell]:
    """A few epochs of each method."""
    chosen = SCALES[TRAINED[scale]]
    base = replace(chosen.spec("cifar10", "resnet18"), epochs=EPOCHS[scale])
    smallest = {"hyper_lr": HYPER_LRS[-1]}
    rows = {
        **hand_designed(base, chosen),
        "L4": replace(base, schedule="l4"),
        "HD": replace(base, schedule="hd", schedule_options=smallest),
        "RTHO": replace(base, schedule="rtho", schedule_options=smallest),
        META_ROW: meta_trained(base, chosen),
    }
    found = [Cell(row, COLUMN, spec) for row, spec in rows.items()]
    if scale == "cpu":
        found.append(default(base, COLUMN))
    return [*found, Cell(TRANSFERRED, COLUMN, transferred(base), learned_in=(META_ROW, COLUMN))]


RECIPE = Recipe(
    "time",
    "Computing time of the methods",
    "MLR-SNet takes about as long as hand-designed schedules, learned or transferred; RTHO takes much longer.",
    cells,
    notes={
        "all": (
            "The result is the median of the seconds per epoch, on a machine that does nothing else. Accuracies after so few "
            "epochs mean little.",
            "On a GPU the steps of hand-designed and learned schedules are one CUDA graph, of L4, HD and RTHO only the "
            "derivatives: part of their time is the loop's, not the method's.",
        ),
        "smoke": (SMOKE,),
        "cpu": (*CPU[:1], "Two epochs. Run it alone, with `--jobs 1`."),
    },
    stand_in=True,
)
