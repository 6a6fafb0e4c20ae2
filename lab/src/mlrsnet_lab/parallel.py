"""A model that several processes train together (DDP): each backward pass averages their gradients."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

Loss = Callable[[nn.Module], Tensor]


def in_parallel(model: nn.Module, device: torch.device, some_loss: Loss) -> nn.Module:
    """Wrap a model that all processes have. Batch norms use each process's own share; the first process's averages count.

    `some_loss` runs the model on any batch. DDP sorts gradients by the order of its first backward pass, and sums of more than two
    numbers round by their place. So that a resumed training rounds as one that never stopped, that pass is made here, and undone.
    """
    parallel = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    before = [buffer.clone() for buffer in model.buffers()]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Grad strides do not match"
        )  # pictures are in channels_last, on a CPU the model is not
        some_loss(parallel).backward()
    for buffer, value in zip(model.buffers(), before, strict=True):
        buffer.copy_(value)
    for parameter in model.parameters():
        parameter.grad = None
    return parallel
