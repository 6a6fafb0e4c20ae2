"""torch's own optimizers. `fused`: on a GPU they have fused kernels, which a CUDA graph can capture."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch.optim import SGD, Optimizer

from mlrsnet_lab import checks

Make = Callable[..., Optimizer]
"""Makes an optimizer from parameters, lr and weight_decay."""


def sgd(fused: bool) -> Make:
    """w - lr (g + wd w)."""
    return partial(SGD, fused=fused)


def sgdm(fused: bool, *, momentum: float = 0.9, nesterov: bool = False) -> Make:
    """SGD with momentum, heavy-ball or Nesterov."""
    return partial(SGD, momentum=checks.below_one("momentum", momentum), nesterov=nesterov, fused=fused)


def adam(kind: Callable[..., Any], fused: bool, *, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> Make:
    """Adam, which adds weight decay to the gradient, or AdamW, which applies it to the weights."""
    return partial(kind, betas=(beta1, beta2), eps=eps, fused=fused, capturable=fused)
