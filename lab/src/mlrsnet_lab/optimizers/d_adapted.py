"""Optimizers that estimate D, the distance from the first weights to a solution, and take steps of that size.

`lr` multiplies the estimate: 1, with the decay that one would use anyway, is what their authors advise.
"""

from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from torch.optim import Optimizer

from mlrsnet_lab import checks
from mlrsnet_lab.optimizers.packages import need
from mlrsnet_lab.optimizers.plain import Parameters


def prodigy(
    parameters: Parameters,
    lr: Any,
    weight_decay: float,
    fused: bool,
    *,
    safeguard_warmup: bool = False,
    bias_correction: bool = True,
) -> Optimizer:
    """Mishchenko and Defazio 2024, from the package `prodigyopt`. lr multiplies its own estimate; its default is 1."""
    kind = need("prodigyopt", "Prodigy", "prodigyopt")
    with redirect_stdout(StringIO()):  # it prints how it decays weights
        return kind(
            parameters,
            lr=lr,
            weight_decay=weight_decay,
            safeguard_warmup=safeguard_warmup,
            use_bias_correction=bias_correction,
        )


def d_adapt_sgd(
    parameters: Parameters, lr: Any, weight_decay: float, fused: bool, *, momentum: float = 0.0
) -> Optimizer:
    """D-Adaptation (Defazio and Mishchenko 2023) for SGD, from the package `dadaptation`."""
    kind = need("dadaptation", "DAdaptSGD", "dadaptation")
    return kind(parameters, lr=lr, weight_decay=weight_decay, momentum=checks.below_one("momentum", momentum))


def d_adapt_adam(
    parameters: Parameters,
    lr: Any,
    weight_decay: float,
    fused: bool,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    decouple: bool = False,
) -> Optimizer:
    """The same for Adam; `decouple` applies weight decay to the weights, as AdamW does."""
    kind = need("dadaptation", "DAdaptAdam", "dadaptation")
    with redirect_stdout(StringIO()):  # it prints how it decays weights
        return kind(parameters, lr=lr, weight_decay=weight_decay, betas=(beta1, beta2), decouple=decouple)
