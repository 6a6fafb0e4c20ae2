"""Optimizers by name, one family per file. On a GPU torch's own have tensor LRs, so that a CUDA graph can capture a step."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.optim import Adam, AdamW, Optimizer

from mlrsnet_lab import options as named
from mlrsnet_lab.optimizers.d_adapted import d_adapt_adam, d_adapt_sgd, prodigy
from mlrsnet_lab.optimizers.l_dog import l_dog
from mlrsnet_lab.optimizers.layerwise import lamb, lars
from mlrsnet_lab.optimizers.plain import Parameters, adam, sgd, sgdm
from mlrsnet_lab.optimizers.schedule_free import schedule_free_adamw, schedule_free_sgd

__all__ = ["EAGER", "OPTIMIZERS", "build"]

_PLAIN: dict[str, Callable[..., Optimizer]] = {
    "sgd": sgd,
    "sgdm": sgdm,
    "adam": partial(adam, Adam),
    "adamw": partial(adam, AdamW),
}
_RIVALS: dict[str, Callable[..., Optimizer]] = {
    "schedule-free-sgd": schedule_free_sgd,
    "schedule-free-adamw": schedule_free_adamw,
    "prodigy": prodigy,
    "d-adapt-sgd": d_adapt_sgd,
    "d-adapt-adam": d_adapt_adam,
    "l-dog": l_dog,
    "lars": lars,
    "lamb": lamb,
}
OPTIMIZERS = _PLAIN | _RIVALS
EAGER = tuple(_RIVALS)
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
