"""Schedule-Free (Defazio et al. 2024), from the package `schedulefree`: an average of the weights instead of a decay."""

from typing import Any

from torch.optim import Optimizer

from mlrsnet_lab.optimizers.packages import need
from mlrsnet_lab.optimizers.plain import Parameters


def schedule_free_sgd(
    parameters: Parameters, lr: Any, weight_decay: float, fused: bool, *, momentum: float = 0.9, warmup_steps: int = 0
) -> Optimizer:
    """`SGDScheduleFree`."""
    kind = need("schedulefree", "SGDScheduleFree", "schedulefree")
    return kind(parameters, lr=lr, weight_decay=weight_decay, momentum=momentum, warmup_steps=warmup_steps)


def schedule_free_adamw(
    parameters: Parameters,
    lr: Any,
    weight_decay: float,
    fused: bool,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    warmup_steps: int = 0,
) -> Optimizer:
    """`AdamWScheduleFree`."""
    kind = need("schedulefree", "AdamWScheduleFree", "schedulefree")
    return kind(parameters, lr=lr, weight_decay=weight_decay, betas=(beta1, beta2), warmup_steps=warmup_steps)
