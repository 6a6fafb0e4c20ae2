"""MLR-SNet over Adam (Section 5.5, Fig. 13): meta-trained on Penn Treebank with 2 layers, transferred to 3.

The paper shows curves without numbers: better than Adam with the val strategy where it was learned, comparable where transferred.
"""

from dataclasses import replace

from mlrsnet_lab.recipes import table3
from mlrsnet_lab.recipes.rows import META_ROW, TRANSFERRED
from mlrsnet_lab.sheets import Cell, Recipe


def cells(scale: str) -> list[Cell]:
    """Learned with two layers, transferred to three."""
    two, three = (table3.over_adam(table3.language_model(scale, layers)) for layers in (2, 3))
    strategy = "Adam, val strategy"
    learned = Cell(
        META_ROW, "2-layer LSTM", replace(two, schedule="mlr-snet", schedule_options={"every": table3.EVERY[scale]})
    )
    return [
        learned,
        Cell(strategy, "2-layer LSTM", replace(two, schedule="val-strategy")),
        Cell(strategy, "3-layer LSTM", replace(three, schedule="val-strategy")),
        Cell(
            TRANSFERRED,
            "3-layer LSTM",
            replace(three, schedule="learned"),
            learned_in=(learned.row, learned.column),
        ),
    ]


RECIPE = Recipe(
    "adam",
    "MLR-SNet over Adam",
    "Over Adam too, a meta-learned schedule is better than the val strategy, and comparable when it is transferred.",
    cells,
    notes={"smoke": table3.RECIPE.notes["smoke"], "short": table3.RECIPE.notes["short"]},
    stand_in=True,
)
