"""The problem that the paper starts from (Eq. 6): the LRs of a whole training as hyperparameters; beside a network that sets them.

The paper sets its network against it (Remark in Section 3.2.1) but shows no numbers. Reverse mode goes back over every step of a
training, so the network that is trained is small at every scale.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from mlrsnet_lab.recipes.rows import SMOKE, Scale, cosine, default, meta_rows
from mlrsnet_lab.sheets import Cell, Recipe
from mlrsnet_lab.spec import RunSpec

COLUMN = "CIFAR-10"
DIRECT = "LRs directly (Eq. 6)"
HIGH_COSINE = "Cosine from 1, warm-up"


@dataclass(frozen=True)
class Setting:
    """A training, which all rows share, and how often Eq. 6 repeats it."""

    scale: Scale
    passes: int = 8
    task_options: dict[str, Any] = field(default_factory=dict)

    def base(self) -> RunSpec:
        """In float32, because bfloat16 leaves few digits of second derivatives."""
        fields: dict[str, Any] = {"precision": "fp32"}
        if not self.scale.stand_in:
            fields |= {"task_options": self.task_options}
        return self.scale.spec("cifar10", "wrn-10-1", epochs=200, **fields)


SETTINGS = {
    "smoke": Setting(Scale(epochs=4, batch_size=64, lr=1.0, stand_in=("digits", "small_cnn")), passes=3),
    "cpu": Setting(Scale(epochs=6, batch_size=64, t_val=100, more=(30, 6)), task_options={"size": 16, "fraction": 0.2}),
    "short": Setting(Scale(epochs=10)),
    "paper": Setting(Scale(epochs=30), passes=16),
}


def cells(scale: str) -> list[Cell]:
    """One training under several kinds of schedules."""
    chosen = SETTINGS[scale]
    base = chosen.base()
    direct = replace(
        base, schedule="direct", schedule_options={"passes": chosen.passes}, epochs=base.epochs * chosen.passes
    )
    return [
        Cell("Fixed", COLUMN, replace(base, schedule="fixed")),
        cosine(base, COLUMN),
        cosine(replace(base, lr=1.0), COLUMN, HIGH_COSINE),
        default(base, COLUMN),
        *(Cell(row, COLUMN, spec) for row, spec in meta_rows("MLR-SNet", base, chosen.scale).items()),
        Cell(DIRECT, COLUMN, direct),
    ]


RECIPE = Recipe(
    "direct",
    "LRs learned directly, without a network",
    "The paper starts from LRs as hyperparameters of one training (Eq. 6) and says that they fit only that one.",
    cells,
    notes={
        "all": (
            f"{DIRECT}: the same training several times, from the same weights and with the same batches. Between these passes, "
            "all LRs follow the exact gradient of the loss on held-out data at its end. The last pass is the result; the best "
            "epoch may be of an earlier one. The other rows train once. T_val is scaled with the epochs.",
            "Reverse mode costs several trainings per pass, so the network is WideResNet-10-1, far smaller than the paper's.",
            "Nothing is transferred: the LRs are in the trace of their run, and know no other horizon.",
        ),
        "smoke": (SMOKE, "4 epochs, 3 passes."),
        "cpu": (
            "A fifth of CIFAR-10 at 16x16, batch 64, 6 epochs, 8 passes. T_val is the paper's 100 where a row does not say.",
        ),
        "short": ("10 epochs, 8 passes.",),
        "paper": ("Not a setting of the paper: 30 epochs, 16 passes.",),
    },
    for_cpu=("smoke", "cpu"),
    stand_in=True,
)
