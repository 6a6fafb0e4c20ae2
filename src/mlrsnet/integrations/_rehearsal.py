"""What the integrations share: a mistake is told when a callback is made, not when the data is loaded and the model is built."""

from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer

from mlrsnet.scheduler import LearnedLR


def any_optimizer() -> Optimizer:
    """One that is never stepped, to make something else with."""
    return SGD([nn.Parameter(torch.zeros(1))], lr=1.0)


def check_arguments(*, total_steps: int | None, **arguments: Any) -> None:
    """Raise what `LearnedLR` has to say of its arguments; the horizon may be the framework's."""
    LearnedLR(any_optimizer(), total_steps=1 if total_steps is None else total_steps, **arguments)
