"""Fig. 1: LR schedules, (a, b) hand-designed, (d, e) learned while training, (f) predicted by what was learned on CIFAR-10.

Pictures: Table 1's two trainings, and TinyImageNet with ResNet-18 for (f). Text: Penn Treebank with 2 and 3 layers. There are no
numbers, only LR curves.
"""

from dataclasses import replace

from mlrsnet_lab.recipes import table1, table3
from mlrsnet_lab.recipes.rows import CPU, META_ROW, SCALES, SHORT, SMOKE, from_sources, hand_designed, meta_rows
from mlrsnet_lab.sheets import Cell, Recipe

PREDICTED = "TinyImageNet"
TEXT = {2: "Penn Treebank, 2-layer LSTM", 3: "Penn Treebank, 3-layer LSTM"}


def cells(scale: str) -> list[Cell]:
    """Learned on each task, and predicted on others by what was learned on CIFAR-10."""
    chosen = SCALES[scale]
    found: list[Cell] = []
    learned: list[Cell] = []
    for column, task, model in table1.COLUMNS[: 1 if scale == "smoke" else None]:
        base = chosen.spec(task, "resnet18" if scale == "short" else model)
        rows = hand_designed(base, chosen)
        rows.pop("Adam")
        rows |= meta_rows(META_ROW, base, chosen)
        cells = [Cell(row, column, spec) for row, spec in rows.items()]
        found += cells
        learned = learned or [cell for cell in cells if cell.row in {f"{META_ROW}{end}" for end in chosen.for_transfer}]
    predicted = from_sources(chosen.spec("tinyimagenet", "resnet18"), PREDICTED, learned)
    found += [replace(cell, optional=scale == "cpu") for cell in predicted]
    for layers, column in TEXT.items():
        text = table3.language_model(scale, layers)
        rows = {
            "SGD, val strategy": replace(text, schedule="val-strategy"),
            "Adam, val strategy": replace(table3.over_adam(text), schedule="val-strategy"),
            **table3.meta_rows(META_ROW, text, scale, name="ptb-lstm"),
        }
        found += [Cell(row, column, spec) for row, spec in rows.items()]
        found += [replace(cell, seeds=1) if scale == "cpu" else cell for cell in from_sources(text, column, learned)]
    return found


RECIPE = Recipe(
    "fig1",
    "Fig. 1: learned and predicted LR curves",
    "The learned LRs have shapes like the hand-designed ones, with more variation; the transferred networks predict alike.",
    cells,
    notes={
        "all": ("Look at the LR curves below the tables.",),
        "smoke": (SMOKE, "Python's own manual stands in for Penn Treebank."),
        "cpu": (*CPU, *table3.CPU[:1]),
        "short": (SHORT,),
    },
    stand_in=True,
)
