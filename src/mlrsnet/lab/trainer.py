"""The training loop of the lab."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from mlrsnet.lab.tasks.digits import Split
from mlrsnet.metatrain import MetaTrainer
from mlrsnet.scheduler import LearnedLR

Step = Callable[[Tensor], float]
"""What decides a step: given the loss, with gradients in place, it moves the weights and returns the LR it used."""


@dataclass
class Curves:
    """What a training leaves: loss and LR of every step, test accuracy (%) of every epoch, the last validation loss."""

    loss: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)
    val_loss: float = math.nan

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, five digits a number."""
        return {name: _rounded(value) for name, value in asdict(self).items()}


def by_hand(optimizer: Optimizer, scheduler: LRScheduler) -> Step:
    """torch's order: the optimizer, then its scheduler."""

    def step(loss: Tensor) -> float:
        lr = float(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
        return lr

    return step


def by_schedule(optimizer: Optimizer, lr: LearnedLR) -> Step:
    """This batch's loss sets this batch's LR."""

    def step(loss: Tensor) -> float:
        lr.step(loss)
        optimizer.step()
        return float(optimizer.param_groups[0]["lr"])

    return step


def by_meta(meta: MetaTrainer) -> Step:
    """The schedule is learned on the way."""

    def step(loss: Tensor) -> float:
        meta.step(loss)
        return float(meta.optimizer.param_groups[0]["lr"])

    return step


def train_epoch(
    model: nn.Module, split: Split, step: Step, batch_size: int, order: torch.Generator, curves: Curves
) -> None:
    """One epoch of full batches, in the order that the generator gives."""
    model.train()
    for batch in torch.randperm(len(split.labels), generator=order).split(batch_size):
        if len(batch) == batch_size:
            loss = batch_loss(model, split, batch)
            model.zero_grad()
            loss.backward()
            lr = step(loss)
            curves.loss.append(loss.item())
            curves.lr.append(lr)


def batch_loss(model: nn.Module, split: Split, batch: Tensor) -> Tensor:
    """Mean cross-entropy of some pictures."""
    batch = batch.to(split.labels.device)
    return cross_entropy(model(split.images[batch]), split.labels[batch])


@torch.no_grad()
def evaluate(model: nn.Module, split: Split) -> tuple[float, float]:
    """Mean loss and accuracy in percent, in evaluation mode."""
    model.eval()
    output = model(split.images)
    correct = (output.argmax(1) == split.labels).float().mean()
    return cross_entropy(output, split.labels).item(), 100 * correct.item()


def _rounded(value: float | list[float]) -> float | list[float]:
    return [float(f"{x:.5g}") for x in value] if isinstance(value, list) else float(f"{value:.5g}")
