"""Steps of a training as CUDA graphs: one launch instead of hundreds."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mlrsnet_lab.capture import captured
from mlrsnet_lab.methods import Method

T = TypeVar("T")
HELD_OUT = "gradients of a held-out batch"


class Capturable(Protocol):
    """The parts of a step that can be captured; see `Stepper`."""

    model: nn.Module
    optimizer: Optimizer
    method: Method

    def whole_step(self) -> None:
        """Loss, gradients, LR and weights."""

    def gradients(self) -> Tensor:
        """The first half of a step: the loss, with its gradients in place."""

    def decide(self, loss: Tensor) -> None:
        """The second half: LR and weights."""

    def prepared_val_gradients(self) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Loss and gradients of a held-out batch that is ready."""


class Graphs:
    """Captures each part of a step when it is first needed, and replays it from then on."""

    def __init__(self, steps: Capturable) -> None:
        self.steps = steps
        self.parameters = list(steps.model.parameters())
        self.whole: torch.cuda.CUDAGraph | None = None
        self.gradients: tuple[torch.cuda.CUDAGraph, Tensor, list[Tensor | None]] | None = None
        self.calls: dict[str, tuple[list[int], tuple[torch.cuda.CUDAGraph, Any] | None]] = {}
        has_tensor_lr = isinstance(steps.optimizer.param_groups[0]["lr"], Tensor)
        self.capturable = steps.method.capturable and has_tensor_lr

    def step(self) -> None:
        """Take one step on the batch that is ready."""
        if self.steps.method.own_gradients:
            self.steps.whole_step()
        elif self.capturable and not self.steps.method.is_due():
            self._replay_whole()
        else:
            self.steps.decide(self._replay_gradients())

    def val_gradients(self) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Loss and gradients of a held-out batch that is ready."""
        return self.call(HELD_OUT, self.steps.prepared_val_gradients, ())

    def call(self, name: str, call: Callable[[], T], tensors: Sequence[Tensor]) -> T:
        """Run `call`, captured from its second time with these tensors on.

        The first time is eager, because the call may need a warm-up in this process.
        """
        places = [tensor.data_ptr() for tensor in tensors]
        known, kept = self.calls.get(name, (None, None))
        if known != places:
            self.calls[name] = places, None
            return call()
        kept = kept or captured(call)
        self.calls[name] = places, kept
        graph, found = kept
        graph.replay()
        result: T = found
        return result

    def _replay_whole(self) -> None:
        if self.whole is None:
            self.whole, _ = captured(self.steps.whole_step)  # the host counts this step now
        else:
            self.steps.method.replayed()
        self.whole.replay()

    def _replay_gradients(self) -> Tensor:
        if self.gradients is None:
            graph, loss = captured(self.steps.gradients)
            self.gradients = graph, loss, [parameter.grad for parameter in self.parameters]
        graph, loss, gradients = self.gradients
        graph.replay()
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient  # the other graph has gradients of its own
        return loss
