"""Training steps in CUDA graphs: one launch per step, so a slow host does not matter."""

from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")

WARM_UP = 3
"""Eager steps before a capture, so that first-time allocation and tuning are over."""


def captured(call: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
    """A graph of what `call` does, on the current stream, and the tensors that hold the results of a replay.

    Nothing is executed. `call` must have run on this stream before, so that first-time allocation and tuning are over.
    """
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        result = call()
    return graph, result
