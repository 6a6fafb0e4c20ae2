"""Optimizers that evaluate other weights than they train (Schedule-Free): switch weights, and recalibrate the batch norms."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

BATCHES = 50
"""Training batches to recalibrate the batch norms with, as many as Schedule-Free's authors use."""


def averages(optimizer: Optimizer) -> bool:
    """Whether the optimizer has a training and an evaluation mode."""
    return callable(getattr(optimizer, "eval", None)) and callable(getattr(optimizer, "train", None))


@contextmanager
def evaluation_weights(optimizer: Optimizer, model: nn.Module, forward: Callable[[], object]) -> Iterator[None]:
    """Inside, the model has the weights to evaluate and batch norms that fit them. Afterwards everything is as before."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    before = [(norm, norm.momentum, {name: b.clone() for name, b in norm.named_buffers()}) for norm in norms]
    weights = [(parameter, parameter.detach().clone()) for parameter in model.parameters()]
    optimizer.eval()  # type: ignore[attr-defined]
    try:
        _recalibrate(model, norms, forward)
        yield
    finally:
        optimizer.train()  # type: ignore[attr-defined]
        with torch.no_grad():  # train() leaves rounding errors
            for parameter, weight in weights:
                parameter.copy_(weight)
        for norm, momentum, buffers in before:
            norm.momentum = momentum
            norm.load_state_dict(buffers, strict=False)


@torch.no_grad()
def _recalibrate(model: nn.Module, norms: list[_BatchNorm], forward: Callable[[], object]) -> None:
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over the batches
    model.train()
    for _ in range(BATCHES if norms else 0):
        forward()
