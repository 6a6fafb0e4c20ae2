"""The parameter groups of an optimizer: their LRs, and the ratios between them."""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


def owner(optimizer: Optimizer) -> Optimizer:
    """The optimizer that owns the groups. A wrapper such as Accelerate's has no hooks of its own."""
    inner = getattr(optimizer, "optimizer", None)
    if isinstance(inner, Optimizer) and inner.param_groups is optimizer.param_groups:
        return owner(inner)
    return optimizer


def set_lr(group: dict[str, Any], lr: float) -> None:
    """Set a group's LR, in place if it is a tensor."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr


def device_of(groups: list[dict[str, Any]]) -> torch.device | None:
    """Where the first tensor LR lives; None if all LRs are floats."""
    return next((group["lr"].device for group in groups if isinstance(group["lr"], Tensor)), None)


def remember_initial_lrs(optimizer: Optimizer) -> None:
    """Keep every group's first LR as a float under `initial_lr`."""
    for group in optimizer.param_groups:
        group["initial_lr"] = float(group.get("initial_lr", group["lr"]))


def reference_group(optimizer: Optimizer) -> dict[str, Any]:
    """The group whose LR is alpha: the first with an initial LR that is not 0, or simply the first."""
    groups = optimizer.param_groups
    return next((group for group in groups if group["initial_lr"]), groups[0])


def initial_ratios(optimizer: Optimizer) -> list[float]:
    """The groups' initial LRs divided by the reference group's; all 1 if every one is 0."""
    unit = reference_group(optimizer)["initial_lr"]
    return [group["initial_lr"] / unit if unit else 1.0 for group in optimizer.param_groups]
