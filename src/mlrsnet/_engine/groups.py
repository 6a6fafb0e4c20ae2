"""Parameter groups of an optimizer: their LRs and the ratios between them."""

from typing import Any

from torch import Tensor
from torch.optim import Optimizer


def owner(optimizer: Optimizer) -> Optimizer:
    """The optimizer that owns the groups: a wrapper such as Accelerate's has no hooks of its own."""
    inner = getattr(optimizer, "optimizer", None)
    if isinstance(inner, Optimizer) and inner.param_groups is optimizer.param_groups:
        return owner(inner)
    return optimizer


def set_lr(group: dict[str, Any], lr: float) -> None:
    """Set a group's LR, in place where it is a tensor."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr


def remember_initial_lrs(optimizer: Optimizer) -> int:
    """Keep every group's first LR as a float under `initial_lr`; the index of the first that is not 0, else 0."""
    for group in optimizer.param_groups:
        group["initial_lr"] = float(group.get("initial_lr", group["lr"]))
    return next((i for i, group in enumerate(optimizer.param_groups) if group["initial_lr"]), 0)


def initial_ratios(optimizer: Optimizer, reference: int) -> list[float]:
    """The groups' initial LRs relative to the reference group's; all 1 where every one is 0."""
    unit = optimizer.param_groups[reference]["initial_lr"]
    return [group["initial_lr"] / unit if unit else 1.0 for group in optimizer.param_groups]
