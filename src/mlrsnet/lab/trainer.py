"""The training loop of the lab."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from mlrsnet.lab.tasks.digits import Digits, Split
from mlrsnet.scheduler import LearnedLR


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


def _rounded(value: float | list[float]) -> float | list[float]:
    return [float(f"{x:.5g}") for x in value] if isinstance(value, list) else float(f"{value:.5g}")


def train(
    model: nn.Module,
    data: Digits,
    optimizer: Optimizer,
    scheduler: LRScheduler,
    *,
    epochs: int,
    batch_size: int,
    seed: int,
    on_epoch: Callable[[], None] = lambda: None,
) -> Curves:
    """Train for whole epochs of full batches, in an order that depends on the seed only."""
    curves, order = Curves(), torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(data.train.labels), generator=order).split(batch_size):
            if len(batch) == batch_size:
                _step(model, data.train, batch, optimizer, scheduler, curves)
        curves.test_accuracy.append(evaluate(model, data.test)[1])
        on_epoch()
    curves.val_loss = evaluate(model, data.val)[0]
    return curves


@torch.no_grad()
def evaluate(model: nn.Module, split: Split) -> tuple[float, float]:
    """Mean loss and accuracy in percent, in evaluation mode."""
    model.eval()
    output = model(split.images)
    correct = (output.argmax(1) == split.labels).float().mean()
    return cross_entropy(output, split.labels).item(), 100 * correct.item()


def _step(
    model: nn.Module, split: Split, batch: torch.Tensor, optimizer: Optimizer, scheduler: LRScheduler, curves: Curves
) -> None:
    loss = cross_entropy(model(split.images[batch]), split.labels[batch])
    optimizer.zero_grad()
    loss.backward()
    if isinstance(scheduler, LearnedLR):
        scheduler.step(loss)  # this batch's loss sets this batch's LR
    curves.loss.append(loss.item())
    curves.lr.append(float(optimizer.param_groups[0]["lr"]))
    optimizer.step()
    if not isinstance(scheduler, LearnedLR):
        scheduler.step()
