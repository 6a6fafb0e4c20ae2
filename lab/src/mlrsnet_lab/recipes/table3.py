"""Table 3 (Section 4.1.2): test perplexity on Penn Treebank with 2 and 3 LSTM layers.

150 epochs of batch 32 and 35 words, SGD from LR 20, Adam from 0.01 with beta1 = 0, weight decay 5e-6, gradients clipped at 0.25.
Val strategy divides the LR by 4 when the validation loss stops falling. The paper reports 70.53 and 72.28 for MLR-SNet, the
best of its rows.
"""

from dataclasses import replace
from typing import Any

from mlrsnet_lab.recipes.rows import PAPER_EVERY
from mlrsnet_lab.sheets import UNSCALED, Cell, Choice, Recipe
from mlrsnet_lab.spec import RunSpec

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
DROP_ALL = "3-layer LSTM, dropout after every layer"
APART = "Adam, val strategy, decay apart"
EPOCHS = {"smoke": 2, "short": 20, "paper": 150}
EVERY = {"smoke": 10, "short": 50, "paper": PAPER_EVERY}
SMALL: dict[str, Any] = {"task": "manual", "batch_size": 128, "sequence_length": 10, "lr": 5.0}
WHOLE: dict[str, Any] = {"task": "ptb", "batch_size": 32, "sequence_length": 35, "lr": 20.0}


def language_model(scale: str, layers: int, **more: Any) -> RunSpec:
    """The paper's training, without its schedule. The smoke scale reads Python's manual with small cells."""
    own = SMALL if scale == "smoke" else WHOLE
    options = {"layers": layers, **({"hidden": 32, "dropout": 0.2} if scale == "smoke" else {}), **more}
    return RunSpec(**own, model="lstm", model_options=options, epochs=EPOCHS[scale], weight_decay=5e-6, clip_norm=0.25)


def over_adam(base: RunSpec) -> RunSpec:
    """Adam without its first moment, as the paper uses it for text."""
    return replace(base, optimizer="adam", optimizer_options={"beta1": 0.0}, lr=0.01)


def cells(scale: str) -> list[Cell]:
    """Every row for both networks; beyond smoke also what may explain why they differ from the paper's."""
    found = []
    for place, (column, layers) in enumerate(LAYERS.items()):
        base = language_model(scale, layers)
        rows = {
            "SGD, val strategy": replace(base, schedule="val-strategy"),
            "Adam, val strategy": replace(over_adam(base), schedule="val-strategy"),
            **{row: replace(base, schedule=row.lower()) for row in GRIDS},
            **meta_rows("MLR-SNet", base, scale, name="ptb-lstm"),
        }
        numbers = {row: both[place] for row, both in PAPER.items()}
        found += [Cell(row, column, spec, numbers.get(row), choice=_choice(row, scale)) for row, spec in rows.items()]
    return found if scale == "smoke" else [*found, *_beside(scale)]


def _beside(scale: str) -> list[Cell]:
    """Adam with its decay apart, and 3 layers with the dropout of the authors' program."""
    column, base = DROP_ALL, language_model(scale, 3, drop_all=True)
    apart = {
        name: replace(over_adam(language_model(scale, layers)), optimizer="adamw") for name, layers in LAYERS.items()
    }
    rows = {
        "SGD, val strategy": replace(base, schedule="val-strategy"),
        "Adam, val strategy": replace(over_adam(base), schedule="val-strategy"),
        **meta_rows("MLR-SNet", base, scale, name="ptb-lstm"),
    }
    numbers = {row: both[1] for row, both in PAPER.items()}
    return [
        *(Cell(APART, name, replace(spec, schedule="val-strategy")) for name, spec in apart.items()),
        *(Cell(row, column, spec, numbers.get(row)) for row, spec in rows.items()),
    ]


def meta_rows(row: str, base: RunSpec, scale: str, **options: Any) -> dict[str, RunSpec]:
    """MLR-SNet with T_val scaled, and with the paper's where it differs, by their rows' names."""
    periods = {"": EVERY[scale]} | ({UNSCALED: PAPER_EVERY} if scale == "short" else {})
    return {
        f"{row}{end}": replace(base, schedule="mlr-snet", schedule_options={"every": every, **options})
        for end, every in periods.items()
    }


def _choice(row: str, scale: str) -> Choice | None:
    if row not in GRIDS:
        return None
    option, values = GRIDS[row]
    return Choice(option, values[:2] if scale == "smoke" else values, 1 if scale == "smoke" else 5)


BESIDE = (
    f"{APART}: AdamW. Adam divides the weight decay by the size of the gradient, so that it is far stronger than SGD's.",
    f"{DROP_ALL}: as in the authors' program. The paper says after the first and the second layer, and so the other column has it.",
)

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
        "short": (*BESIDE, "20 of 150 epochs, T_val 50 for 100."),
        "paper": BESIDE,
    },
    stand_in=True,
)
