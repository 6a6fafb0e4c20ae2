"""Checks that report a mistake when a callback is made, before data is loaded and a model is built."""

from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer

from mlrsnet._engine.contract import check_keeps_range
from mlrsnet.scheduler import LearnedLR


def any_optimizer() -> Optimizer:
    """An optimizer that is never stepped, for constructors that need one."""
    return SGD([nn.Parameter(torch.zeros(1))], lr=1.0)


def check_arguments(*, total_steps: int | None, monitor: str | None = None, **arguments: Any) -> None:
    """Raise any error that `LearnedLR` would raise for these arguments. The framework may supply `total_steps` later."""
    lr = LearnedLR(any_optimizer(), total_steps=1 if total_steps is None else total_steps, **arguments)
    if monitor is not None:
        check_keeps_range(lr.schedule)
