"""The parameter groups of an optimizer: their LRs, and the ratios between them."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

Groups = list[dict[str, Any]]


def device_of(groups: Groups) -> torch.device | None:
    """Where the LRs live if one is a tensor on a device; None for floats and for tensors on a CPU, which the host can read."""
    lrs = (group["lr"] for group in groups)
    return next((lr.device for lr in lrs if isinstance(lr, Tensor) and lr.device.type != "cpu"), None)


def remember_initial_lrs(groups: Groups) -> None:
    """Keep every group's first LR as a float under `initial_lr`, as torch's schedulers do."""
    for group in groups:
        group["initial_lr"] = float(group["initial_lr"] if "initial_lr" in group else group["lr"])


def check(groups: Groups) -> None:
    """Refuse LRs of which no ratios can be made, and those that cannot hold an LR."""
    for lr in (group["lr"] for group in groups):
        if isinstance(lr, Tensor) and not lr.is_floating_point():
            raise TypeError(
                f"lr of the parameter groups must be a float or a tensor of floats, got one of {lr.dtype}, in which every LR below "
                "1 is 0: pass torch.tensor(1e-3)"
            )
    lrs = [group["initial_lr"] for group in groups]
    if not all(math.isfinite(lr) and lr >= 0 for lr in lrs) or not any(lrs):
        raise ValueError(
            f"lr of the parameter groups must be finite numbers >= 0, and not all 0, got {lrs}: only their ratios count, so "
            "pass any lr, such as 1e-3"
        )


def main_group(groups: Groups) -> int:
    """The place of the group whose LR is alpha: the one that most weights use, whatever the order of the groups.

    Groups with the same initial LR count together, weights that are not trained do not count, and of two LRs with as many
    weights the larger one is taken. Among the groups with this LR it is the largest.
    """
    sizes = [_size(group) for group in groups]
    members: dict[float, int] = {}
    for group, size in zip(groups, sizes, strict=True):
        if group["initial_lr"]:
            members[group["initial_lr"]] = members.get(group["initial_lr"], 0) + size
    if not members:
        return 0
    lr = max(members, key=lambda lr: (members[lr], lr))
    return max((place for place, group in enumerate(groups) if group["initial_lr"] == lr), key=sizes.__getitem__)


def ratios_to(groups: Groups, place: int) -> list[float]:
    """The groups' initial LRs divided by that of one of them; all 1 if that is 0."""
    unit = groups[place]["initial_lr"]
    return [group["initial_lr"] / unit if unit else 1.0 for group in groups]


def own_tensors(optimizer: Optimizer, device: torch.device | None) -> None:
    """Give every group a tensor of its own where LRs are tensors. The user's tensor stays in the first group that has it.

    Groups that were made from one default share it, and a group added later would begin at what we wrote into it. With LRs on a
    device, floats become tensors there too.
    """
    seen: set[int] = set()
    for group in optimizer.param_groups:
        if not isinstance(group["lr"], Tensor):
            if device is not None:
                group["lr"] = torch.tensor(float(group["lr"]), device=device)
        elif id(group["lr"]) in seen:
            group["lr"] = group["lr"].clone()
        seen.add(id(group["lr"]))
    default = optimizer.defaults.get("lr")
    if isinstance(default, Tensor) and id(default) in seen:
        optimizer.defaults["lr"] = default.clone()


def put_back(groups: Groups, tensors: Sequence[Any]) -> None:
    """After `Optimizer.load_state_dict`: what was loaded, in the tensors that were there, which graphs and users may hold."""
    for group, tensor in zip(groups, tensors, strict=False):
        if isinstance(tensor, Tensor) and group["lr"] is not tensor:
            tensor.copy_(torch.as_tensor(group["lr"], device=tensor.device))
            group["lr"] = tensor


def _size(group: dict[str, Any]) -> int:
    """How many numbers of a group are trained; a DTensor knows its whole size."""
    return sum(weight.numel() for weight in group["params"] if weight.requires_grad and not is_lazy(weight))


class Recorded:
    """The LR of a step, from a list; the last one stays. It is an object, so `LambdaLR.state_dict` saves the list."""

    def __init__(self, lrs: list[float]) -> None:
        self.lrs = lrs

    def __call__(self, step: int) -> float:
        """The LR of a step."""
        return self.lrs[min(step, len(self.lrs) - 1)]


def replay(optimizer: Optimizer, lrs: list[float], ratios: list[float]) -> LambdaLR:
    """A `LambdaLR` that sets group i to lrs[step] * ratios[i], bit for bit as recorded."""
    if len(optimizer.param_groups) != len(ratios):
        raise ValueError(
            f"optimizer must have the {len(ratios)} parameter groups of the recorded run, got {len(optimizer.param_groups)}"
        )
    scheduler = LambdaLR(optimizer, Recorded(lrs))
    # LambdaLR multiplies base_lrs by the lambda. With the ratios as base_lrs, the product is exactly the recorded one.
    scheduler.base_lrs = list(ratios)
    for group, ratio in zip(optimizer.param_groups, ratios, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lrs[0] * ratio)
        else:
            group["lr"] = lrs[0] * ratio
    scheduler._last_lr = [group["lr"] for group in optimizer.param_groups]
    return scheduler
