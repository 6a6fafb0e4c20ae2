"""Version 1 of the default, an LSTM, against tuned schedules on many tasks; not in the paper.

`universal-lstm` has nothing to tune. Cosine and linear decays with 5 % warm-up are tried at 0.3, 1, 3, 10 and 30 times the
usual LR of the task's optimizer; MultiStep, Schedule-Free, Prodigy with a cosine, the authors' checkpoints (`mlrsnet schedules
import` first) and Algorithm 1 in the training itself have one setting each. Scale short needs no GPU: seven small tasks. Scale
paper is for one.
"""

from dataclasses import replace

from mlrsnet_lab.recipes.proof import decays, rivals
from mlrsnet_lab.recipes.proof_tasks import RESNET, SEVEN, ProofTask, task
from mlrsnet_lab.recipes.rows import named
from mlrsnet_lab.sheets import Cell, Recipe

TIMES = (0.3, 1, 3, 10, 30)
"""The grid of the decays, in multiples of the usual LR."""

SCALES: dict[str, tuple[ProofTask, ...]] = {
    "smoke": (replace(SEVEN[0], spec=replace(SEVEN[0].spec, epochs=2)),),
    "short": SEVEN,
    "paper": (
        task("CIFAR-10, ResNet-18, SGD", 382, task="cifar10", **RESNET),
        task("CIFAR-100, ResNet-18, SGD", 382, task="cifar100", **RESNET),
    ),
}


def cells(scale: str) -> list[Cell]:
    """Sixteen rows per task."""
    return [cell for column in SCALES[scale] for cell in _cells(column)]


def _cells(column: ProofTask) -> list[Cell]:
    spec, others = column.spec, rivals(column)
    rows = {
        **decays(column, TIMES),
        "MultiStep": replace(spec, schedule="multistep", lr=column.lr),
        "Schedule-Free": others["Schedule-Free"],
        "Prodigy + cosine": others["Prodigy"],
    }
    return [
        named("Universal LSTM", column.name, spec, "universal-lstm"),
        *(Cell(row, column.name, made) for row, made in rows.items()),
        named("Authors' checkpoints", column.name, spec, "official"),
        Cell("Algorithm 1", column.name, replace(spec, schedule="mlr-snet", schedule_options={"every": 20})),
    ]


RECIPE = Recipe(
    "universal-lstm",
    "Version 1 of the default, untuned, against tuned schedules",
    "One schedule with nothing to tune ends at most as high in error as the best-tuned other schedule on 8 of 10 tasks, and never "
    "more than 5 % above it.",
    cells,
    for_cpu=("smoke", "short"),
    notes={
        "all": (
            "Not in the paper. Every row of a task trains on the same data from the same weights in the same order.",
            "LRs in multiples of the usual one: 0.1 for SGD (1 for LSTMs), 0.01 with momentum 0.9, 0.001 for Adam and AdamW. "
            "Choose a decay's LR by validation.",
            "Schedule-Free has 10 times the usual LR (2.5 times for AdamW) and 5 % warm-up; Prodigy its default 1.",
        ),
        "short": (
            "Tasks for a CPU: parts of data sets, pictures of 16x16, small networks, one pass over Tiny Shakespeare.",
        ),
    },
    scales=("smoke", "short", "paper"),
)
