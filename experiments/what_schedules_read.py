"""Shipped schedules read the loss: the LR that they set while the loss stays at one value."""

import math
from pathlib import Path

from experiments import markdown
from mlrsnet import Schedule

STEPS, CLASSES = 100, 10
PROGRESS = {"after 5 % of the training": 5, "halfway": 50, "after 90 %": 90}


def reads(name: str, losses: tuple[float, ...]) -> list[str]:
    """LRs for SGD; a loss of 1 is that of guessing, log(classes)."""
    schedule, guessing = Schedule.load(name), math.log(CLASSES)
    gamma = schedule.card.gamma(guessing, CLASSES)
    curves = [schedule.simulate([loss * guessing] * STEPS, gamma, num_classes=CLASSES) for loss in losses]
    lines = ([words, *(f"{curve[step]:.2f}" for curve in curves)] for words, step in PROGRESS.items())
    return markdown.table([f"LR of `{name}` at a loss of", *(f"{loss:g} x log(classes)" for loss in losses)], lines)


def universal_lstm() -> list[str]:
    """Version 1 of the default."""
    return reads("universal-lstm", (2, 1, 0.6, 0.1))


def patches() -> list[str]:
    """The schedule that was learned from patch networks."""
    return reads("cifar10-patches", (2, 1, 0.1))


def draw(out: Path) -> None:
    """LRs of version 1 over loss and progress."""
    Schedule.load("universal-lstm").plot_map(out)
