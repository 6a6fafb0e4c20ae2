"""Trainings that are saved halfway: the next version must be able to go on with what this one saved.

    python -m tools.saved        writes tests/golden/saved.pt with the version that is installed

`tests/test_saved.py` goes on with the file. Write it anew only where states are meant to differ: its users then cannot go on
with their own. Weights, data and all arithmetic are in double precision and come from numpy's `RandomState`, whose stream never
changes, so that other CPUs and other versions of torch have the same LRs but for rounding.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW, Optimizer

from mlrsnet import LearnedLR
from mlrsnet.card import versions
from mlrsnet_lab.records import commit

FILE = Path(__file__).parents[1] / "tests" / "golden" / "saved.pt"
INPUTS, CLASSES, BATCH, BEFORE, AFTER, EPOCH = 70, 5, 8, 40, 40, 10
"""The first matrix has 70 x 60 entries: more than a sensor looks at."""

Made = tuple[Optimizer, LearnedLR]
TOTAL = BEFORE + AFTER


def _sgd(model: nn.Module) -> Made:
    optimizer = SGD(model.parameters(), lr=0.1)
    return optimizer, LearnedLR(optimizer, total_steps=TOTAL)


def _tensor_lr(model: nn.Module) -> Made:
    optimizer = AdamW(model.parameters(), lr=torch.tensor(1e-3, dtype=torch.float64))
    return optimizer, LearnedLR(optimizer, total_steps=TOTAL)


def _groups(model: nn.Module) -> Made:
    first, *others = model.parameters()
    groups: list[dict[str, Any]] = [{"params": [first], "lr": 0.02}, {"params": others}]
    optimizer = SGD(groups, lr=0.1, momentum=0.9)
    return optimizer, LearnedLR(optimizer, total_steps=TOTAL)


def _network(model: nn.Module) -> Made:
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    return optimizer, LearnedLR(optimizer, "universal-lstm", total_steps=TOTAL, num_classes=CLASSES)


TRAININGS: dict[str, Callable[[nn.Module], Made]] = {
    "the default, SGD": _sgd,
    "the default, AdamW, an LR that is a tensor": _tensor_lr,
    "the default, momentum, two groups": _groups,
    "universal-lstm": _network,
}


class Training(NamedTuple):
    """What a user saves."""

    model: nn.Module
    optimizer: Optimizer
    lr: LearnedLR


def begin(name: str) -> Training:
    """A training before its first step."""
    hidden = 60 if name == "the default, SGD" else 8
    model = nn.Sequential(nn.Linear(INPUTS, hidden), nn.Tanh(), nn.Linear(hidden, CLASSES)).double()
    chance = np.random.RandomState(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.from_numpy(chance.standard_normal(weight.shape) / weight.shape[-1] ** 0.5))
    return Training(model, *TRAININGS[name](model))


def steps(training: Training, first: int, last: int) -> list[float]:
    """Train, validate after every epoch, and return the LRs of the last group."""
    used = []
    for step in range(first, last):
        chance = np.random.RandomState(step)
        inputs, labels = chance.standard_normal((BATCH, INPUTS)), chance.randint(CLASSES, size=BATCH)
        loss = cross_entropy(training.model(torch.from_numpy(inputs)), torch.from_numpy(labels).long())
        training.optimizer.zero_grad()
        loss.backward()
        training.lr.step(loss)
        training.optimizer.step()
        used.append(float(training.optimizer.param_groups[-1]["lr"]))
        if step % EPOCH == EPOCH - 1:
            training.lr.validate(2 + abs(step / TOTAL - 0.2))  # it over-fits
    return used


def state(training: Training) -> dict[str, Any]:
    """As a user saves it."""
    return {name: part.state_dict() for name, part in training._asdict().items()}


def restored(name: str, kept: dict[str, Any]) -> Training:
    """A new training with the state of a saved one."""
    training = begin(name)
    for part, found in training._asdict().items():
        found.load_state_dict(kept[part])
    return training


def halfway(name: str) -> dict[str, Any]:
    """A saved training, and the LRs with which it goes on."""
    training = begin(name)
    steps(training, 0, BEFORE)
    kept = copy.deepcopy(state(training))  # those of an optimizer go on with it
    return {**kept, "lrs": steps(training, BEFORE, TOTAL)}


def main() -> None:
    """Write the file."""
    kept = {name: halfway(name) for name in TRAININGS}
    torch.save({"versions": versions(), "commit": commit(), "trainings": kept}, FILE)


if __name__ == "__main__":
    main()
