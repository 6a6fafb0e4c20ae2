"""Training steps in CUDA graphs: one launch a step, whatever the host's speed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

T = TypeVar("T")


@dataclass(frozen=True)
class Lane:
    """A stream, and memory for the graphs that are captured on it: they never run at the same time, and share it.

    What a graph leaves in that memory is lost when another one runs: results belong in tensors made outside.
    """

    stream: torch.cuda.Stream
    memory: Any

    @classmethod
    def on(cls, device: torch.device) -> "Lane | None":
        """A new one; None where there are no streams."""
        if device.type != "cuda":
            return None
        return cls(torch.cuda.Stream(device), torch.cuda.graph_pool_handle())


def captured(call: Callable[[], T], memory: Any = None) -> tuple[torch.cuda.CUDAGraph, T]:
    """A graph of what `call` does, on the current stream, and the tensors that a replay leaves its results in.

    Nothing is executed. `call` must have run before on this stream, so that whatever allocates or tunes at the first
    time has done so. `memory` is a `Lane`'s.
    """
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, pool=memory, stream=torch.cuda.current_stream()):
        result = call()
    return graph, result
