"""Fig. 1: LR schedules, (a, b) hand-designed, (d, e) learned while training, (f) predicted by what was learned on CIFAR-10.

Pictures: Table 1's two trainings, and TinyImageNet with ResNet-18 for (f). Text: Penn Treebank with a 2-layer LSTM. There are no
numbers, only the report's LR curves.
"""

from dataclasses import replace

from mlrsnet_lab.recipes import table1, table3
from mlrsnet_lab.recipes.rows import (
    META_ROW,
    SCALES,
    SHORT,
    SMOKE,
    TRANSFERRED,
    hand_designed,
    meta_trained,
    transferred,
)
from mlrsnet_lab.sheets import Cell, Recipe

PREDICTED = "TinyImageNet"
TEXT = "Penn Treebank, 2-layer LSTM"


def cells(scale: str) -> list[Cell]:
    """Learned on each task, and predicted on others by what was learned on CIFAR-10."""
    chosen, found = SCALES[scale], []
    learned_in = (META_ROW, "CIFAR-10")
    for column, task, model in table1.COLUMNS[: 1 if scale == "smoke" else None]:
        base = chosen.spec(task, "resnet18" if scale == "short" else model)
        rows = hand_designed(base, chosen)
        rows.pop("Adam")
        found += [Cell(row, column, spec) for row, spec in rows.items()]
        found.append(Cell(META_ROW, column, meta_trained(base, chosen)))
    pictures = chosen.spec("tinyimagenet", "resnet18")
    found.append(Cell(TRANSFERRED, PREDICTED, transferred(pictures), learned_in=learned_in))
    text = table3.language_model(scale, 2)
    learned = replace(text, schedule="mlr-snet", schedule_options={"every": table3.EVERY[scale]})
    found.append(Cell("SGD, val strategy", TEXT, replace(text, schedule="val-strategy")))
    found.append(Cell(META_ROW, TEXT, learned))
    found.append(Cell(TRANSFERRED, TEXT, transferred(text), learned_in=learned_in))
    return found


RECIPE = Recipe(
    "fig1",
    "Fig. 1: learned and predicted LR curves",
    "The learned LRs have shapes like the hand-designed ones, with more variation; the transferred networks predict alike.",
    cells,
    notes={
        "all": ("Look at the LR curves below the tables.",),
        "smoke": (SMOKE, "Python's own manual stands in for Penn Treebank."),
        "short": (SHORT,),
    },
    stand_in=True,
)
