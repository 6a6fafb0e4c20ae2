"""Table 3 (Section 4.1.2): test perplexity on Penn Treebank with 2 and 3 LSTM layers.

150 epochs of batch 32 and 35 words, SGD from LR 20, Adam from 0.01 with beta1 = 0, weight decay 5e-6, gradients clipped at 0.25.
Val strategy divides the LR by 4 when the validation loss stops falling. The paper reports 70.53 and 72.28 for MLR-SNet, the
best of its rows.
"""

from dataclasses import replace
from typing import Any

from mlrsnet.lab.recipes.base import Cell, Choice, Recipe
from mlrsnet.lab.spec import RunSpec

HYPER_LRS = (1.0, 0.5, 0.1, 0.05)
PAPER: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "SGD, val strategy": ((74.33, 0.23), (76.05, 0.39)),
    "Adam, val strategy": ((71.17, 0.23), (74.80, 0.73)),
    "L4": ((82.58, 1.32), (92.27, 0.92)),
    "HD": ((76.90, 0.33), (78.63, 0.08)),
    "RTHO": ((76.69, 0.11), (78.52, 0.16)),
    "MLR-SNet": ((70.53, 0.25), (72.28, 0.25)),
}
GRIDS = {"L4": ("fraction", (0.1, 0.05, 0.01, 0.005)), "HD": ("hyper_lr", HYPER_LRS), "RTHO": ("hyper_lr", HYPER_LRS)}
LAYERS = {"2-layer LSTM": 2, "3-layer LSTM": 3}
EPOCHS = {"smoke": 2, "short": 20, "paper": 150}
EVERY = {"smoke": 10, "short": 50, "paper": 100}
SMALL: dict[str, Any] = {"task": "manual", "batch_size": 128, "sequence_length": 10, "lr": 5.0}
WHOLE: dict[str, Any] = {"task": "ptb", "batch_size": 32, "sequence_length": 35, "lr": 20.0}


def language_model(scale: str, layers: int) -> RunSpec:
    """The paper's training, without its schedule. The smoke scale reads Python's manual with small cells."""
    own = SMALL if scale == "smoke" else WHOLE
    options = {"layers": layers, **({"hidden": 32, "dropout": 0.2} if scale == "smoke" else {})}
    return RunSpec(**own, model="lstm", model_options=options, epochs=EPOCHS[scale], weight_decay=5e-6, clip_norm=0.25)


def over_adam(base: RunSpec) -> RunSpec:
    """Adam without its first moment, as the paper uses it for text."""
    return replace(base, optimizer="adam", optimizer_options={"beta1": 0.0}, lr=0.01)


def cells(scale: str) -> list[Cell]:
    """Every row for both networks."""
    found = []
    for place, (column, layers) in enumerate(LAYERS.items()):
        base = language_model(scale, layers)
        rows = {
            "SGD, val strategy": replace(base, schedule="val-strategy"),
            "Adam, val strategy": replace(over_adam(base), schedule="val-strategy"),
            **{row: replace(base, schedule=row.lower()) for row in GRIDS},
            "MLR-SNet": replace(
                base, schedule="mlr-snet", schedule_options={"every": EVERY[scale], "name": "ptb-lstm"}
            ),
        }
        found += [Cell(row, column, spec, PAPER[row][place], choice=_choice(row, scale)) for row, spec in rows.items()]
    return found


def _choice(row: str, scale: str) -> Choice | None:
    if row not in GRIDS:
        return None
    option, values = GRIDS[row]
    return Choice(option, values[:2] if scale == "smoke" else values, 1 if scale == "smoke" else 5)


RECIPE = Recipe(
    "table3",
    "Table 3: test perplexity on Penn Treebank",
    "MLR-SNet, meta-trained, has the lowest test perplexity of all rows: 70.53 with 2 layers, 72.28 with 3.",
    cells,
    paper_setting={"smoke": "Penn Treebank, 150 epochs", "short": "150 epochs"},
    notes={
        "all": (
            "L4's fraction and the hyper-LRs of HD and RTHO are those of the paper's grids that are best on validation data "
            "after a few epochs (5 at scales short and paper) of the first seed.",
            "MLR-SNet and the val strategy look at the validation part, which the paper's authors use as the meta-set too.",
        ),
        "smoke": ("Python's own manual and small cells stand in for Penn Treebank: this shows that everything works.",),
        "short": ("20 of 150 epochs, T_val 50 for 100.",),
    },
    stand_in=True,
)
