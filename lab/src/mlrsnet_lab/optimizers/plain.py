"""torch's own optimizers. On a GPU they have tensor LRs and fused kernels."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.optim import SGD, Optimizer

from mlrsnet_lab import checks

Parameters = Iterable[nn.Parameter]


def sgd(parameters: Parameters, lr: Any, weight_decay: float, fused: bool) -> Optimizer:
    """w - lr (g + wd w)."""
    return SGD(parameters, lr=lr, weight_decay=weight_decay, fused=fused)


def sgdm(
    parameters: Parameters,
    lr: Any,
    weight_decay: float,
    fused: bool,
    *,
    momentum: float = 0.9,
    nesterov: bool = False,
) -> Optimizer:
    """SGD with momentum, heavy-ball or Nesterov."""
    checks.below_one("momentum", momentum)
    return SGD(parameters, lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, fused=fused)


def adam(
    kind: Callable[..., Optimizer],
    parameters: Parameters,
    lr: Any,
    weight_decay: float,
    fused: bool,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> Optimizer:
    """Adam, which adds weight decay to the gradient, or AdamW, which applies it to the weights."""
    betas = (beta1, beta2)
    return kind(parameters, lr=lr, weight_decay=weight_decay, betas=betas, eps=eps, fused=fused, capturable=fused)
