"""Table 3 (Section 4.1.2): test perplexity on Penn Treebank with 2 and 3 LSTM layers.

150 epochs of batch 32 and 35 words, SGD from LR 20, Adam from 0.01 with beta1 = 0, weight decay 5e-6, gradients clipped at 0.25.
Val strategy divides the LR by 4 when the validation loss stops falling. The paper reports 70.53 and 72.28 for MLR-SNet, the
best of its rows.
"""

from dataclasses import replace
from typing import Any

from mlrsnet.lab.recipes.base import Cell, Recipe
from mlrsnet.lab.spec import RunSpec

PAPER: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "SGD, val strategy": ((74.33, 0.23), (76.05, 0.39)),
    "Adam, val strategy": ((71.17, 0.23), (74.80, 0.73)),
    "MLR-SNet": ((70.53, 0.25), (72.28, 0.25)),
}
LAYERS = {"2-layer LSTM": 2, "3-layer LSTM": 3}
EPOCHS = {"smoke": 3, "short": 20, "paper": 150}
EVERY = {"smoke": 10, "short": 50, "paper": 100}
SMALL: dict[str, Any] = {"task": "manual", "batch_size": 16, "sequence_length": 20, "lr": 5.0}
WHOLE: dict[str, Any] = {"task": "ptb", "batch_size": 32, "sequence_length": 35, "lr": 20.0}


def language_model(scale: str, layers: int) -> RunSpec:
    """The training of the paper, but for the schedule; smoke reads Python's manual with small cells."""
    own = SMALL if scale == "smoke" else WHOLE
    options = {"layers": layers, **({"hidden": 48, "dropout": 0.2} if scale == "smoke" else {})}
    return RunSpec(**own, model="lstm", model_options=options, epochs=EPOCHS[scale], weight_decay=5e-6, clip_norm=0.25)


def over_adam(base: RunSpec) -> RunSpec:
    """Adam without its first moment, as the paper has it for text."""
    return replace(base, optimizer="adam", optimizer_options={"beta1": 0.0}, lr=0.01)


def cells(scale: str) -> list[Cell]:
    """Every row for both networks."""
    found = []
    for place, (column, layers) in enumerate(LAYERS.items()):
        base = language_model(scale, layers)
        rows = {
            "SGD, val strategy": replace(base, schedule="val-strategy"),
            "Adam, val strategy": replace(over_adam(base), schedule="val-strategy"),
            "MLR-SNet": replace(
                base, schedule="mlr-snet", schedule_options={"every": EVERY[scale], "name": "ptb-lstm"}
            ),
        }
        found += [Cell(row, column, spec, PAPER[row][place]) for row, spec in rows.items()]
    return found


RECIPE = Recipe(
    "table3",
    "Table 3: test perplexity on Penn Treebank",
    "MLR-SNet, meta-trained, has the lowest test perplexity of all rows: 70.53 with 2 layers, 72.28 with 3.",
    cells,
    paper_setting={"smoke": "Penn Treebank, 150 epochs", "short": "150 epochs"},
    notes={
        "all": (
            "MLR-SNet and the val strategy look at the validation part, which the paper's authors use as the meta-set too.",
        ),
        "smoke": ("Python's own manual and small cells stand in for Penn Treebank: this shows that everything works.",),
        "short": ("20 of 150 epochs, T_val 50 for 100.",),
    },
)
