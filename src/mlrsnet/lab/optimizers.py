"""Optimizers by name. On a GPU they have tensor LRs and fused kernels, so that a CUDA graph can capture a step."""

from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from mlrsnet import _check
from mlrsnet.lab import options as named

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
    _check.below_one("momentum", momentum)
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


def schedule_free_sgd(
    parameters: Parameters, lr: Any, weight_decay: float, fused: bool, *, momentum: float = 0.9, warmup_steps: int = 0
) -> Optimizer:
    """Defazio et al. 2024, from the package `schedulefree`."""
    kind = _package("schedulefree", "SGDScheduleFree", "schedulefree")
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
    """Defazio et al. 2024, from the package `schedulefree`."""
    kind = _package("schedulefree", "AdamWScheduleFree", "schedulefree")
    return kind(parameters, lr=lr, weight_decay=weight_decay, betas=(beta1, beta2), warmup_steps=warmup_steps)


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
    kind = _package("prodigyopt", "Prodigy", "prodigyopt")
    with redirect_stdout(StringIO()):  # it prints how it decays weights
        return kind(
            parameters,
            lr=lr,
            weight_decay=weight_decay,
            safeguard_warmup=safeguard_warmup,
            use_bias_correction=bias_correction,
        )


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": sgd,
    "sgdm": sgdm,
    "adam": partial(adam, Adam),
    "adamw": partial(adam, AdamW),
    "schedule-free-sgd": schedule_free_sgd,
    "schedule-free-adamw": schedule_free_adamw,
    "prodigy": prodigy,
}
EAGER = ("schedule-free-sgd", "schedule-free-adamw", "prodigy")
"""These read numbers on the host in every step, so they have float LRs and are never captured."""


def build(
    name: str, parameters: Parameters, lr: float, weight_decay: float, device: torch.device, **options: Any
) -> Optimizer:
    """An optimizer by its name, with its initial LR."""
    named.check("optimizer_options", name, OPTIMIZERS[name], options)
    on_gpu = device.type == "cuda" and name not in EAGER
    return OPTIMIZERS[name](
        parameters, torch.tensor(lr, device=device) if on_gpu else lr, weight_decay, on_gpu, **options
    )


def _package(module: str, kind: str, package: str) -> Any:
    try:
        return getattr(__import__(module), kind)
    except ImportError:
        raise ImportError(
            f"this optimizer needs the package {package}, which is not installed: pip install {package}"
        ) from None
