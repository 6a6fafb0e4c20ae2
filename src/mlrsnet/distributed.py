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
    if isinstance(loss, Tensor):
        total = loss.detach().float().clone()
    else:
        device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
        total = torch.tensor(loss, dtype=torch.float64, device=device)
    dist.all_reduce(total, group=group)
    return total / ranks
