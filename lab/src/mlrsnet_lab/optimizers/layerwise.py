"""LARS and LAMB, from the package `timm`: every tensor's step is scaled by its own |w| / |step|.

timm scales only tensors with weight decay unless told otherwise. Here it is told otherwise, so that the optimizer is the same with
and without weight decay.
"""

from typing import Any

from torch.optim import Optimizer

from mlrsnet_lab import checks
from mlrsnet_lab.optimizers.packages import need
from mlrsnet_lab.optimizers.plain import Parameters


def lars(
    parameters: Parameters,
    lr: Any,
    weight_decay: float,
    fused: bool,
    *,
    momentum: float = 0.9,
    trust: float = 1e-3,
) -> Optimizer:
    """You et al. 2017: momentum over lr * trust |w| / (|g| + wd |w|) (g + wd w). timm's LR is 1, its trust 0.001."""
    kind = need("timm.optim", "Lars", "timm")
    return kind(
        parameters,
        lr=lr,
        weight_decay=weight_decay,
        momentum=checks.below_one("momentum", momentum),
        trust_coeff=checks.positive("trust", trust),
        always_adapt=True,
    )


def lamb(
    parameters: Parameters, lr: Any, weight_decay: float, fused: bool, *, beta1: float = 0.9, beta2: float = 0.999
) -> Optimizer:
    """You et al. 2020: Adam's direction u with weight decay, times |w| / |u|. timm's LR is 0.001; it clips gradients to norm 1."""
    kind = need("timm.optim", "Lamb", "timm")
    return kind(parameters, lr=lr, weight_decay=weight_decay, betas=(beta1, beta2), always_adapt=True)
