"""Training steps in CUDA graphs: one launch a step, whatever the host's speed."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")


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


class CapturedLoss:
    """A loss whose forward and backward passes are one graph: called, it gives a tensor that backward() knows what to do with.

    Args:
        loss: computes the loss of the next batch.
        model: whose gradients it has; they are not touched by the call itself.
    """

    def __init__(self, loss: Callable[[], Tensor], model: nn.Module) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

        def both() -> tuple[Tensor, tuple[Tensor, ...]]:
            value = loss()
            return value.detach(), torch.autograd.grad(value, self.parameters)

        self.graph, (self.value, self.gradients) = captured(both)

    def __call__(self) -> Tensor:
        """Replay."""
        self.graph.replay()
        value: Tensor = _Replayed.apply(self.value, self.gradients, *self.parameters)
        return value


class _Replayed(torch.autograd.Function):
    """Hands gradients that are known already to their parameters."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: tuple[Tensor, ...], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        return None, None, *torch._foreach_mul(ctx.gradients, outer[0])
