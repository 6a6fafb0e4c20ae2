"""One loss for all ranks, so that every rank computes the same LR."""

from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

Group = dist.ProcessGroup | Literal[False] | None
"""None: the default group when there is one. False: every rank on its own."""


def average_over_ranks(loss: float | Tensor, group: Group = None) -> float | Tensor:
    """The mean of `loss` over the ranks of a group; `loss` itself where there is only one rank."""
    if group is False or not (dist.is_available() and dist.is_initialized()):
        return loss
    ranks = dist.get_world_size(group)
    if ranks == 1:
        return loss
    total = torch.as_tensor(loss).detach().to(_device(group, loss), torch.float64, copy=True)
    dist.all_reduce(total, group=group)
    return total / ranks


def _device(group: Group, loss: float | Tensor) -> torch.device:
    """The loss's own device where the group's backends serve it, else one that they serve."""
    served = [pair.split(":")[0] for pair in dist.get_backend_config(group or None).split(",")]
    own = loss.device if isinstance(loss, Tensor) else torch.device("cpu")
    return own if own.type in served else torch.device(served[0])
