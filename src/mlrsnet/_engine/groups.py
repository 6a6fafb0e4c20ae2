"""The parameter groups of an optimizer: their LRs, and the ratios between them."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from mlrsnet._engine import shards
from mlrsnet._engine.ranks import Group, sum_over_ranks


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


def first_group(optimizer: Optimizer) -> int:
    """The place of the first group with an initial LR that is not 0, or of the first."""
    return next((place for place, group in enumerate(optimizer.param_groups) if group["initial_lr"]), 0)


def main_group(optimizer: Optimizer, process_group: Group = None) -> int:
    """The place of the group whose LR is alpha: the one that most weights use, whatever the order of the groups.

    Groups with the same initial LR count together, weights that are not trained do not count, and of two LRs with as many
    weights the larger one is taken. Among the groups with this LR it is the largest.
    """
    groups = optimizer.param_groups
    sizes = _sizes(groups, process_group)
    members: dict[float, float] = {}
    for group, size in zip(groups, sizes, strict=True):
        if group["initial_lr"]:
            members[group["initial_lr"]] = members.get(group["initial_lr"], 0.0) + size
    if not members:
        return 0
    lr = max(members, key=lambda lr: (members[lr], lr))
    return max((place for place, group in enumerate(groups) if group["initial_lr"] == lr), key=sizes.__getitem__)


def ratios_to(optimizer: Optimizer, place: int) -> list[float]:
    """The groups' initial LRs divided by that of one of them; all 1 if that is 0."""
    unit = optimizer.param_groups[place]["initial_lr"]
    return [group["initial_lr"] / unit if unit else 1.0 for group in optimizer.param_groups]


def _sizes(groups: list[dict[str, Any]], process_group: Group) -> list[float]:
    """How many numbers of each group are trained; of all processes where they hold parts, so that all decide alike."""
    trained = [[weight for weight in group["params"] if weight.requires_grad] for group in groups]
    sizes = [float(sum(weight.numel() for weight in weights if not is_lazy(weight))) for weights in trained]
    if any(shards.is_flattened(weight) for weights in trained for weight in weights):
        return sum_over_ranks(torch.tensor(sizes), process_group).tolist()
    return sizes  # a DTensor knows its whole size
