"""Version 1 of the default, an LSTM, against tuned schedules on many tasks; not in the paper.

`universal-lstm` has nothing to tune. Cosine and linear decays with 5 % warm-up are tried at 0.3, 1, 3, 10 and 30 times the
usual LR of the task's optimizer; MultiStep, Schedule-Free, Prodigy with a cosine, the authors' checkpoints (`mlrsnet schedules
import` first) and Algorithm 1 in the training itself have one setting each. Scale short needs no GPU: seven small tasks. Scale
paper is for one.
"""

from dataclasses import dataclass, replace
from typing import Any

from mlrsnet_lab.recipes.rows import WARMUP, named
from mlrsnet_lab.sheets import Cell, Recipe
from mlrsnet_lab.spec import RunSpec

Fields = dict[str, Any]
TIMES = (0.3, 1, 3, 10, 30)
"""The grid of the decays, in multiples of the usual LR."""

USUAL_LR = {"sgd": 0.1, "sgdm": 0.01, "adam": 1e-3, "adamw": 1e-3}


@dataclass(frozen=True)
class Target:
    """A task: how it is trained, without a schedule; its usual LR; and 5 % of its steps."""

    name: str
    spec: RunSpec
    lr: float
    warmup_steps: int


def _column(name: str, warmup_steps: int, *, lr: float | None = None, **fields: Any) -> Target:
    spec = RunSpec(**{"epochs": 5, **fields})
    return Target(name, spec, lr or USUAL_LR[spec.optimizer], warmup_steps)


LSTM: Fields = {"model": "lstm", "model_options": {"layers": 1, "hidden": 128, "dropout": 0.0}, "clip_norm": 0.25}
SHAKESPEARE: Fields = {
    "task": "tinyshakespeare",
    "batch_size": 32,
    "sequence_length": 32,
    "epochs": 1,
    "weight_decay": 0.0,
}
TRANSFORMER: Fields = {"model": "transformer", "model_options": {"layers": 2, "width": 64, "length": 64}}
RESNET: Fields = {"model": "resnet18", "batch_size": 128, "epochs": 30}
SMALL: Fields = {"model": "small_cnn", "epochs": 10}
SIXTEEN: Fields = {"size": 16, "fraction": 0.2}

DIGITS = _column("Digits, MLP, SGD", 9, task="digits", model="mlp", epochs=10)
SCALES: dict[str, tuple[Target, ...]] = {
    "smoke": (replace(DIGITS, spec=replace(DIGITS.spec, epochs=2)),),
    "short": (
        DIGITS,
        _column("Fashion-MNIST, MLP, SGD", 43, task="fashion_mnist", task_options={"fraction": 0.2}, model="mlp"),
        _column(
            "SVHN 16x16, CNN, SGDM",
            70,
            task="svhn",
            task_options=SIXTEEN | {"fraction": 0.5},
            optimizer="sgdm",
            **SMALL,
        ),
        _column("CIFAR-10 16x16, CNN, SGD", 70, task="cifar10", task_options=SIXTEEN, **SMALL),
        _column(
            "Shakespeare, transformer, AdamW",
            12,
            **(SHAKESPEARE | TRANSFORMER | {"batch_size": 64, "sequence_length": 64, "weight_decay": 0.1}),
            optimizer="adamw",
        ),
        _column("Shakespeare, LSTM, SGD", 49, lr=1.0, optimizer="sgd", **SHAKESPEARE, **LSTM),
        _column("Shakespeare, LSTM, Adam", 49, optimizer="adam", **SHAKESPEARE, **LSTM),
    ),
    "paper": (
        _column("CIFAR-10, ResNet-18, SGD", 573, task="cifar10", **RESNET),
        _column("CIFAR-100, ResNet-18, SGD", 573, task="cifar100", **RESNET),
    ),
}


def cells(scale: str) -> list[Cell]:
    """Sixteen rows per task."""
    return [cell for column in SCALES[scale] for cell in _cells(column)]


def _cells(column: Target) -> list[Cell]:
    spec, lr = column.spec, column.lr
    adaptive = spec.optimizer.startswith("adam")
    schedule_free: Fields = {
        "optimizer": "schedule-free-adamw" if adaptive else "schedule-free-sgd",
        "lr": 2.5 * lr if adaptive else 10 * lr,
        "optimizer_options": {"warmup_steps": column.warmup_steps},
    }
    decays = {
        f"{kind.capitalize()} {times:g}x": replace(spec, schedule=kind, schedule_options=WARMUP, lr=times * lr)
        for kind in ("cosine", "linear")
        for times in TIMES
    }
    hand_designed = {**decays, "MultiStep": replace(spec, schedule="multistep", lr=lr)}
    tuning_free = {
        "Schedule-Free": replace(spec, schedule="fixed", **schedule_free),
        "Prodigy + cosine": replace(spec, schedule="cosine", optimizer="prodigy", lr=1.0),
    }
    return [
        named("Universal LSTM", column.name, spec, "universal-lstm"),
        *(Cell(row, column.name, made) for row, made in (hand_designed | tuning_free).items()),
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
)
