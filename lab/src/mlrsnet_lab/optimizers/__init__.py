"""Optimizers by name. On a GPU torch's own have tensor LRs, so that a CUDA graph can capture a step."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Adam, AdamW, Optimizer

from mlrsnet_lab import options as named
from mlrsnet_lab.optimizers import rivals
from mlrsnet_lab.optimizers.adam_h import adam_h
from mlrsnet_lab.optimizers.l_dog import l_dog
from mlrsnet_lab.optimizers.mechanic import mechanic_adam, mechanic_sgd
from mlrsnet_lab.optimizers.plain import Make, adam, sgd, sgdm
from mlrsnet_lab.optimizers.schedule_free_plus import schedule_free_plus

__all__ = ["EAGER", "OPTIMIZERS", "build"]

_PLAIN: dict[str, Callable[..., Make]] = {
    "sgd": sgd,
    "sgdm": sgdm,
    "adam": partial(adam, Adam),
    "adamw": partial(adam, AdamW),
}
_RIVALS: dict[str, Callable[..., Make]] = {
    "schedule-free-sgd": rivals.schedule_free_sgd,
    "schedule-free-adamw": rivals.schedule_free_adamw,
    "schedule-free-plus": schedule_free_plus,
    "prodigy": rivals.prodigy,
    "d-adapt-sgd": rivals.d_adapt_sgd,
    "d-adapt-adam": rivals.d_adapt_adam,
    "mechanic-sgd": mechanic_sgd,
    "mechanic-adam": mechanic_adam,
    "l-dog": l_dog,
    "adam-h": adam_h,
    "lars": rivals.lars,
    "lamb": rivals.lamb,
}
OPTIMIZERS = _PLAIN | _RIVALS
EAGER = tuple(_RIVALS)
"""These read numbers on the host in every step, so they have float LRs and are never captured."""

BY_LAYER = ("adam-h",)
"""These are made from the model: they treat its layers differently."""


def build(
    name: str,
    model: nn.Module,
    lr: float,
    weight_decay: float,
    device: torch.device,
    **options: Any,
) -> Optimizer:
    """An optimizer of what is trained of a model, by its name, with its initial LR."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    named.check("optimizer_options", name, OPTIMIZERS[name], options)
    if name in EAGER:
        what = model if name in BY_LAYER else trained
        return OPTIMIZERS[name](**options)(what, lr=lr, weight_decay=weight_decay)
    on_gpu = device.type == "cuda"
    make = OPTIMIZERS[name](on_gpu, **options)
    return make(trained, lr=torch.tensor(lr, device=device) if on_gpu else lr, weight_decay=weight_decay)
