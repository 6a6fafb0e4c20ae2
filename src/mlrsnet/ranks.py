"""One loss for all ranks, so that every rank computes the same LR."""

from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

Group = dist.ProcessGroup | Literal[False] | None
"""None: the default group, if there is one. False: every rank on its own."""


def check_group(group: object) -> None:
    """Refuse what is no group of processes."""
    if not (group is None or group is False or isinstance(group, dist.ProcessGroup)):
        raise TypeError(f"process_group must be a ProcessGroup, None or False, got {group!r}: pass dist.new_group(...)")


def num_ranks(group: Group) -> int:
    """How many processes work together; 1 without `torch.distributed`."""
    if group is False or not (dist.is_available() and dist.is_initialized()):
        return 1
    return dist.get_world_size(group)


def sum_over_ranks(numbers: Tensor, group: Group) -> Tensor:
    """The sum of every number over the ranks, as a new float64 tensor."""
    total = numbers.detach().to(_served(numbers.device, group), torch.float64, copy=True)
    if num_ranks(group) > 1:
        dist.all_reduce(total, group=group or None)
    return total


def average_over_ranks(loss: float | Tensor, group: Group = None) -> float | Tensor:
    """The mean of `loss` over the ranks of a group; `loss` itself if there is only one rank."""
    ranks = num_ranks(group)
    if ranks == 1:
        return loss
    exact = loss if isinstance(loss, Tensor) else torch.tensor(loss, dtype=torch.float64, device="cpu")
    return sum_over_ranks(exact, group) / ranks


@torch.no_grad()
def share_from_first(tensor: Tensor, group: Group) -> None:
    """Overwrite a tensor on every rank with the one of the group's first rank."""
    if num_ranks(group) > 1:
        shared = tensor.to(_served(tensor.device, group), copy=True)
        dist.broadcast(shared, src=dist.get_global_rank(group, 0) if group else 0, group=group or None)
        tensor.copy_(shared)


def _served(device: torch.device, group: Group) -> torch.device:
    """The device itself if the group's backends serve it, else one that they serve."""
    if num_ranks(group) == 1:
        return device
    served = [pair.split(":")[0] for pair in dist.get_backend_config(group or None).split(",")]
    return device if device.type in served else torch.device(served[0])
