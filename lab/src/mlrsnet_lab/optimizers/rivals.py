"""Optimizers from packages of their authors, imported when they are needed.

Prodigy and D-Adaptation estimate D, the distance from the first weights to a solution, and take steps of that size; `lr` multiplies
the estimate: 1, with the decay that one would use anyway, is what their authors advise. Schedule-Free has an average of the weights
instead of a decay. LARS and LAMB scale every tensor's step by its own |w| / |step|; timm scales only tensors with weight decay
unless told otherwise, and here it is, so that the optimizer is the same with and without weight decay.
"""

import importlib
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from typing import Any

from torch.optim import Optimizer

from mlrsnet_lab import checks
from mlrsnet_lab.optimizers.plain import Make


def need(module: str, kind: str, package: str) -> Any:
    """A class of a package, or an error that says what to install."""
    try:
        return getattr(importlib.import_module(module), kind)
    except ImportError:
        raise ImportError(
            f"this optimizer needs the package {package}, which is not installed: pip install {package}"
        ) from None


def prodigy(*, safeguard_warmup: bool = False, bias_correction: bool = True) -> Make:
    """Mishchenko and Defazio 2024."""
    kind = need("prodigyopt", "Prodigy", "prodigyopt")
    return partial(_quietly, kind, safeguard_warmup=safeguard_warmup, use_bias_correction=bias_correction)


def d_adapt_sgd(*, momentum: float = 0.0) -> Make:
    """D-Adaptation (Defazio and Mishchenko 2023) for SGD."""
    kind = need("dadaptation", "DAdaptSGD", "dadaptation")
    return partial(kind, momentum=checks.below_one("momentum", momentum))


def d_adapt_adam(*, beta1: float = 0.9, beta2: float = 0.999, decouple: bool = False) -> Make:
    """The same for Adam; `decouple` applies weight decay to the weights, as AdamW does."""
    kind = need("dadaptation", "DAdaptAdam", "dadaptation")
    return partial(_quietly, kind, betas=(beta1, beta2), decouple=decouple)


def schedule_free_sgd(*, momentum: float = 0.9, warmup_steps: int = 0) -> Make:
    """Defazio et al. 2024, over SGD."""
    kind = need("schedulefree", "SGDScheduleFree", "schedulefree")
    return partial(kind, momentum=momentum, warmup_steps=warmup_steps)


def schedule_free_adamw(*, beta1: float = 0.9, beta2: float = 0.999, warmup_steps: int = 0) -> Make:
    """The same over AdamW."""
    kind = need("schedulefree", "AdamWScheduleFree", "schedulefree")
    return partial(kind, betas=(beta1, beta2), warmup_steps=warmup_steps)


def lars(*, momentum: float = 0.9, trust: float = 1e-3) -> Make:
    """You et al. 2017: momentum over lr * trust |w| / (|g| + wd |w|) (g + wd w). timm's LR is 1, its trust 0.001."""
    kind, momentum = need("timm.optim", "Lars", "timm"), checks.below_one("momentum", momentum)
    return partial(kind, momentum=momentum, trust_coeff=checks.positive("trust", trust), always_adapt=True)


def lamb(*, beta1: float = 0.9, beta2: float = 0.999) -> Make:
    """You et al. 2020: Adam's direction u with weight decay, times |w| / |u|. timm's LR is 0.001; it clips gradients to norm 1."""
    return partial(need("timm.optim", "Lamb", "timm"), betas=(beta1, beta2), always_adapt=True)


def _quietly(kind: Any, parameters: Any, **settings: Any) -> Optimizer:
    """Make an optimizer that prints how it decays weights."""
    with redirect_stdout(StringIO()):
        made: Optimizer = kind(parameters, **settings)
    return made
