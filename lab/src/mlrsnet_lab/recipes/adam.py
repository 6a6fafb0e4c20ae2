"""MLR-SNet over Adam (Section 5.5, Fig. 13): meta-trained on Penn Treebank with 2 layers, transferred to 3.

The paper shows curves without numbers: better than Adam with the val strategy where it was learned, comparable where transferred.
"""

from dataclasses import replace

from mlrsnet_lab.recipes import table3
from mlrsnet_lab.recipes.rows import META_ROW, TRANSFERRED, default
from mlrsnet_lab.sheets import Cell, Recipe


def cells(scale: str) -> list[Cell]:
    """Learned with two layers, transferred to three."""
    two, three = (table3.over_adam(table3.language_model(scale, layers)) for layers in (2, 3))
    strategy = "Adam, val strategy"
    rows = table3.meta_rows(META_ROW, two, scale)
    learned = [Cell(row, "2-layer LSTM", spec) for row, spec in rows.items()]
    found = [
        *learned,
        Cell(strategy, "2-layer LSTM", replace(two, schedule="val-strategy")),
        Cell(strategy, "3-layer LSTM", replace(three, schedule="val-strategy")),
    ]
    for cell in learned:
        row = f"{TRANSFERRED}{cell.row.removeprefix(META_ROW)}"
        over_adam = replace(three, schedule="learned")
        found.append(Cell(row, "3-layer LSTM", over_adam, learned_in=(cell.row, cell.column)))
    return [*found, default(two, "2-layer LSTM"), default(three, "3-layer LSTM")] if scale == "cpu" else found


RECIPE = Recipe(
    "adam",
    "MLR-SNet over Adam",
    "Over Adam too, a meta-learned schedule is better than the val strategy, and comparable when it is transferred.",
    cells,
    notes={scale: table3.RECIPE.notes[scale] for scale in ("smoke", "short")} | {"cpu": table3.CPU[:1]},
    stand_in=True,
)
