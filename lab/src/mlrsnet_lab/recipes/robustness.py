"""What Tables 5 and 6 share (Section 4.4): ResNet-18 on corrupted pictures, 100 epochs, tested on clean ones.

SGDM from 0.1 with weight decay 5e-4, batch 128; MultiStep divides by 10 every 30 epochs, the others as in Table 1.
"""

from collections.abc import Sequence
from dataclasses import replace

from mlrsnet_lab.datasets.corruptions import CORRUPTIONS
from mlrsnet_lab.recipes.rows import CPU, SCALES, Paper, cosine, default, with_momentum
from mlrsnet_lab.sheets import Average, Cell
from mlrsnet_lab.spec import RunSpec

EPOCHS = 100
SETS = {"CIFAR-10-C": "cifar10-c", "CIFAR-100-C": "cifar100-c"}
FIRST = "gaussian_noise"
SMALL = (FIRST, "contrast")
OPTIONAL = ("frost",)
CPU_EVAL_EVERY = 3
"""Epochs: the test set, CIFAR's training pictures, is five times as large as what is trained on."""

SEEDS = {"cpu": 1}
PAPER_SETTING = {"smoke": "CIFAR-10-C, 100 epochs", "cpu": "100 epochs, its own network", "short": "100 epochs"}
NOTES = {
    "all": (
        "Trained on corrupted test pictures, tested on clean training pictures; 10 of these per class are for validation only.",
        "The published files are read if they exist, else the pictures are generated; each run's note says which. Frost cannot be "
        "generated without its photographs: if it is not run, the mean is over one corruption fewer than the paper's.",
    ),
    "smoke": ("Corrupted digits and a small CNN stand in for CIFAR and ResNet-18: this shows that everything works.",),
    "cpu": (
        *CPU,
        "A fifth of the 50,000 corrupted pictures, 15 epochs, 2,325 steps: 23 and 387 meta-updates. Tested after every "
        "third epoch. One seed: the deviation is over corruptions.",
        "Beside the paper's rows a cosine after a warm-up of 5 % and the default of this library, both with momentum.",
    ),
    "short": ("30 of 100 epochs; milestones, cycles, Exponential's decay and T_val are scaled with them.",),
}


def names(scale: str) -> Sequence[str]:
    """The corruptions that are trained on."""
    return SMALL if scale == "smoke" else tuple(CORRUPTIONS)


def column(group: str, corruption: str) -> str:
    """The name of a column."""
    return f"{group}, {corruption.replace('_', ' ')}"


def groups(scale: str) -> dict[str, str]:
    """The datasets by their titles."""
    return {"Digits-C": "digits-c"} if scale == "smoke" else SETS


def spec(scale: str, task: str, corruption: str) -> RunSpec:
    """The training, without its schedule."""
    chosen = SCALES[scale]
    options = {"corruption": corruption, **({"size": 8} if chosen.stand_in else {"generate": True})}
    made = chosen.spec(task, "resnet18", epochs=EPOCHS, eval_every=CPU_EVAL_EVERY if scale == "cpu" else 1)
    return replace(made, task=task, task_options=made.task_options | options)


def beside(scale: str, group: str, corruption: str, base: RunSpec) -> list[Cell]:
    """On two cores a cosine and the default, with the momentum of the hand-designed rows."""
    if scale != "cpu":
        return []
    moving, there = with_momentum(base, SCALES[scale]), column(group, corruption)
    return [replace(cell, optional=corruption in OPTIONAL) for cell in (cosine(moving, there), default(moving, there))]


def averages(scale: str, last: dict[str, Paper], best: dict[str, Paper], skip: str = "") -> list[Average]:
    """One mean per dataset. Digits are compared with the paper's CIFAR-10-C."""
    there = [corruption for corruption in names(scale) if corruption != skip]
    found = []
    for group in groups(scale):
        of_paper = group if group in SETS else "CIFAR-10-C"
        columns = [column(group, one) for one in there]
        found.append(Average(f"{group}, mean over corruptions", columns, last[of_paper], best[of_paper]))
    return found


def cell(row: str, group: str, corruption: str, made: RunSpec, learned_in: tuple[str, str] | None = None) -> Cell:
    """One run. Frost is optional: its photographs may be missing."""
    return Cell(row, column(group, corruption), made, learned_in=learned_in, optional=corruption in OPTIONAL)
