"""Training steps in CUDA graphs: one launch a step, whatever the host's speed."""

from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")

WARM_UP = 3
"""Steps taken eagerly before one is captured: what allocates or tunes at the first time has done so."""


def captured(call: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
    """A graph of what `call` does, on the current stream, and the tensors that a replay leaves its results in.

    Nothing is executed. `call` must have run before on this stream, so that whatever allocates or tunes at the first
    time has done so.
    """
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        result = call()
    return graph, result
