"""Which departure of the authors' program carries the difference: Algorithm 1 as printed, with some of them, and with all.

Not in the paper. CIFAR-10 with ResNet-18; T_val is not scaled with the horizon. `authors.DEPARTURES` says what each departure is.
"""

from dataclasses import replace

from mlrsnet_lab.recipes.authors import AUTHORS_EVERY, DEPARTURES, program, without
from mlrsnet_lab.recipes.rows import CPU, PAPER_EVERY, SCALES, SMOKE, default, hand_designed, meta_trained
from mlrsnet_lab.sheets import Cell, Recipe

AUTHORS_PERIOD = {"smoke": 10, "cpu": AUTHORS_EVERY, "short": AUTHORS_EVERY, "paper": AUTHORS_EVERY}
EPOCHS = {"smoke": 10, "cpu": 30, "short": 30, "paper": 200}
EVERY = {"smoke": 10, "cpu": PAPER_EVERY, "short": PAPER_EVERY, "paper": PAPER_EVERY}
PRINTED, THEIRS = "As printed", "The authors' program"
ROWS = {
    PRINTED: [],
    "Their initial weights": ["init"],
    "Augmented validation, mean f_0": ["augment-val", "initial-loss"],
    "Their cell": ["layout"],
    "Their initial network": ["net-init"],
    "One update in every epoch": ["every", "epoch-period"],
    "Their validation images": ["overlap"],
    THEIRS: list(DEPARTURES),
    f"{THEIRS}, validation held out": without("overlap"),
}
"""Row -> the departures that it has."""


def cells(scale: str) -> list[Cell]:
    """Meta-trainings with some departures, and two hand-designed schedules with torch's and with their initial weights."""
    chosen = replace(SCALES[scale], epochs=EPOCHS[scale], t_val=EVERY[scale])
    base, column = chosen.spec("cifar10", "resnet18"), "Digits" if scale == "smoke" else "CIFAR-10"
    printed, period = meta_trained(base, chosen), AUTHORS_PERIOD[scale]
    found = [Cell(row, column, program(printed, names, every=period)) for row, names in ROWS.items()]
    for row in ("MultiStep", "SGDR"):
        spec = hand_designed(base, chosen)[row]
        found += [Cell(row, column, spec), Cell(f"{row}, their initial weights", column, program(spec, ["init"]))]
    if scale == "cpu":
        often = SCALES[scale].more[-1]
        found += [
            Cell(f"{PRINTED}, T_val {often}", column, meta_trained(base, chosen, every=often)),
            default(base, column),
        ]
    return found


RECIPE = Recipe(
    "attribution",
    "What separates Algorithm 1 as printed from the authors' program",
    "The paper prints one algorithm; the authors' program differs from it in twelve ways that change numbers.",
    cells,
    notes={
        "all": (
            "Not a table of the paper. Every row but the last four is Algorithm 1 as printed with the departures that it names. "
            "Their initial weights: Xavier-uniform with gain sqrt(2), as large as He's. Mean f_0: gamma from the mean loss of the "
            "training set in evaluation mode.",
        ),
        "smoke": (SMOKE, "T_val 10 for 100 and for 300. Digits are never augmented."),
        "cpu": (
            *CPU,
            "T_val is not scaled: the authors' 300 make one update in each of the 30 epochs, the paper's 100 make 42.",
        ),
        "short": ("30 of 200 epochs; T_val is not scaled.",),
    },
)
