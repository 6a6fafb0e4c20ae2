"""The shipped default against tuned decays and tuning-free rivals, on many tasks; not in the paper.

Decays with 5 % warm-up are tried at 0.03 to 100 times the usual LR, and chosen on validation data. Rivals have their documented
defaults: nothing of them is tuned. Scale short needs no GPU: 18 tasks, seconds per training. Scale paper is for one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mlrsnet.files import hub
from mlrsnet.files.names import SUFFIX
from mlrsnet_lab.recipes import rows
from mlrsnet_lab.recipes.proof_tasks import TASKS, ProofTask
from mlrsnet_lab.recipes.rows import WARMUP, named
from mlrsnet_lab.sheets import Cell, Recipe
from mlrsnet_lab.spec import RunSpec

LEARNED = {
    "Universal": "universal",
    "Universal LSTM": "universal-lstm",
}
"""Rows of learned schedules: a name, the path of a .safetensors file, or hf://owner/name. A new one is one line."""

VALIDATED, LEAST_EPOCHS = "Universal, validated", 5
"""With fewer epochs the first cut would come after the end."""

UNTOLD = "Universal, without losses"

TIMES = (0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
"""The grid of the decays, in multiples of the task's usual LR."""

COSINE: dict[str, Any] = {"schedule": "cosine"}
WARM_COSINE: dict[str, Any] = {"schedule": "cosine", "schedule_options": WARMUP}
FIRST_STEP = {"reps_rel": 1e-4}
"""Of L-DoG for networks with batch norm, as its authors advise; 1e-6 for all others."""

CALIBRATED = {"adam": 0.0041, "momentum": 0.081, "sgd": 0.39}
"""The best LR for all trainings of results/law/table.jsonl.gz: `calibrated` in results/law/fits.json, which `python -m
lab.studies.law fit` writes."""

KINDS = {"adam": "adam", "adamw": "adam", "sgdm": "momentum", "sgd": "sgd"}
"""Which of them an optimizer has."""

CLIP_NORM = 1.0
"""AdamH's authors clip gradients to it."""

WARM_LONGER: dict[str, Any] = {"warmup": 0.1}
"""Of AdamH: its authors' runs have 4 to 20 %."""


def cells(scale: str) -> list[Cell]:
    """All rows of every task."""
    return [cell for task in TASKS[scale] for cell in _cells(task)]


def decays(task: ProofTask, grid: Sequence[float] = TIMES) -> dict[str, RunSpec]:
    """Cosine and linear, at every LR of a grid of multiples of the usual one."""
    return rows.decays(task.spec, {f"{times:g}x": float(f"{times * task.lr:g}") for times in grid})


def rivals(task: ProofTask) -> dict[str, RunSpec]:
    """Each with its own optimizer, at its documented default."""
    spec = task.spec
    own: dict[str, Any] = {"optimizer_options": {}}
    warm = {"warmup_steps": task.warmup_steps}
    return {
        "One relative size": replace(spec, schedule="relative-rule"),
        "Schedule-Free": replace(
            spec,
            schedule="fixed",
            optimizer="schedule-free-adamw" if task.adaptive else "schedule-free-sgd",
            optimizer_options=warm,
            lr=2.5 * task.lr if task.adaptive else 10 * task.lr,
        ),
        "ScheduleFree+": replace(
            spec,
            schedule="fixed",
            schedule_options=WARMUP,
            optimizer="schedule-free-plus",
            optimizer_options=warm,
            lr=1.0,
            weight_decay=0.0,
        ),
        "Prodigy": replace(spec, optimizer="prodigy", lr=1.0, **own, **COSINE),
        "D-Adaptation": replace(spec, lr=1.0, **_over("d-adapt", spec), **COSINE),
        "Mechanic": replace(spec, lr=1.0, **_over("mechanic", spec), **WARM_COSINE),
        "L-DoG": replace(
            spec,
            schedule="fixed",
            optimizer="l-dog",
            optimizer_options=FIRST_STEP if task.batch_norm else {},
            lr=1.0,
        ),
        "LAMB": replace(spec, optimizer="lamb", lr=1e-3, **own, **WARM_COSINE),
        "LARS": replace(spec, optimizer="lars", lr=1.0, **own, **WARM_COSINE),
        "AdamH": replace(
            spec,
            schedule="cosine",
            schedule_options=WARM_LONGER,
            optimizer="adam-h",
            lr=0.02,
            weight_decay=0.0,
            clip_norm=spec.clip_norm or CLIP_NORM,
            **own,
        ),
        "Calibrated": replace(spec, lr=CALIBRATED[KINDS[spec.optimizer]], **WARM_COSINE),
        "Calibrated AdamW": replace(spec, optimizer="adamw", lr=CALIBRATED["adam"], **own, **WARM_COSINE),
    }


def learned(row: str, task: ProofTask, schedule: str) -> Cell:
    """A schedule by name, file or address; a name that is not there leaves its cell empty."""
    if schedule.endswith(SUFFIX) or schedule.startswith(hub.PREFIX):
        spec = replace(task.spec, schedule="learned", schedule_options={"schedule": schedule})
        return Cell(row, task.name, spec)
    return named(row, task.name, task.spec, schedule)


def validated(task: ProofTask) -> Cell:
    """The default, which also reads the validation loss after every epoch."""
    cell = learned(VALIDATED, task, LEARNED["Universal"])
    if cell.spec is None:
        return cell
    return replace(cell, spec=replace(cell.spec, schedule_options={**cell.spec.schedule_options, "validate": True}))


def untold(task: ProofTask) -> Cell:
    """The default, which is told no loss."""
    return named(UNTOLD, task.name, task.spec, LEARNED["Universal"], tells_loss=False)


def _over(name: str, spec: RunSpec) -> dict[str, Any]:
    """The form of D-Adaptation or Mechanic for the task's optimizer."""
    if spec.optimizer.startswith("adam"):
        options: dict[str, Any] = {"decouple": True} if spec.optimizer == "adamw" else {}
        return {"optimizer": f"{name}-adam", "optimizer_options": options}
    return {"optimizer": f"{name}-sgd", "optimizer_options": {"momentum": 0.9} if spec.optimizer == "sgdm" else {}}


def _cells(task: ProofTask) -> list[Cell]:
    return [
        *(learned(row, task, schedule) for row, schedule in LEARNED.items()),
        untold(task),
        *([validated(task)] if task.spec.epochs >= LEAST_EPOCHS else []),
        *(Cell(row, task.name, spec) for row, spec in (decays(task) | rivals(task)).items()),
    ]


RECIPE = Recipe(
    "proof",
    "The default, untuned, against tuned decays and tuning-free rivals on many tasks",
    "With nothing to tune, the geometric mean of its error against the best-tuned decay is at most 1 over all tasks, above 1.05 on "
    "none, and below that of every rival at its documented default.",
    cells,
    for_cpu=("smoke", "short"),
    notes={
        "all": (
            "Not in the paper. Every row of a task trains on the same data from the same weights in the same order.",
            "Decays have a warm-up of 5 % and LRs in multiples of the task's usual one: 0.1 for SGD (1 for LSTMs on characters, 10 "
            "on Penn Treebank), 0.01 with momentum, 0.001 for Adam and AdamW, a tenth of that for fine-tuning on the same, 0.01 "
            "for prices in dollars. Choose by validation.",
            "One relative size: every step is 8.7 % of the weights' length, measured, in a linear decay with 5 % warm-up.",
            "Universal, without losses: it is told none, as where a loop has no call of LearnedLR.step.",
            "Universal, validated: it reads the validation loss after every epoch (LearnedLR.validate); only where there are at "
            "least 5. The decays are chosen by the same data.",
            "Schedule-Free has 10 times the usual LR (2.5 times with Adam and AdamW) and 5 % warm-up; Prodigy and D-Adaptation an "
            "LR of 1 and a cosine; L-DoG an LR of 1, its averaging, and a first step of 1e-4 with batch norm, else 1e-6; LAMB "
            "0.001 and LARS 1 (trust 0.001, momentum 0.9), both with 5 % warm-up and a cosine.",
            "ScheduleFree+ is the class in its author's repository at its defaults: an LR of 1 with 5 % warm-up, no weight decay. "
            "Mechanic has the task's optimizer at an LR of 1, 5 % warm-up and a cosine. AdamH has the LRs and betas that its "
            "authors' smallest network has (0.02, Adam's 0.008; 0.9, 0.98), no weight decay, gradients clipped to norm 1 where a "
            "task has no limit, 10 % warm-up and a cosine.",
            "Calibrated: one LR for all tasks with SGD, one with momentum, one with Adam and AdamW, each the best on the small "
            "trainings that the default's law was fitted to; 5 % warm-up and a cosine. Calibrated AdamW: the last of them in place "
            "of any optimizer.",
        ),
        "smoke": ("Tables and digits that come with scikit-learn: this shows that everything works.",),
        "short": (
            "Tasks for a CPU: parts of data sets, small pictures and networks, seconds per training.",
            "Fine-tuning starts from a network trained on the first half of MNIST and goes on with a quarter that it has not seen; "
            "or from six classes of CIFAR-10, and learns the other four.",
        ),
        "paper": ("TinyImageNet is a subset of 15,000 pictures.",),
    },
    scales=("smoke", "short", "paper"),
)
