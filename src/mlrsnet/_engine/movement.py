"""One step of an optimizer, from the weights before and after it: how far each of them moved."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from mlrsnet._engine import shards
from mlrsnet._engine.counted import LOW_PRECISION, Counted, dense

Buffers = dict[Tensor, Tensor]
"""Places for copies of weights. They stay the same for a weight, since a captured step writes into them."""


@dataclass
class Open:
    """A step that has begun."""

    counted: Counted
    with_closure: bool
    direction: str | None
    before: list[Tensor]
    """Copies of the weights, or their gradients where these are the direction and known already."""

    norms: Sequence[Tensor]
    """Of the weights."""

    @property
    def is_at_one(self) -> bool:
        """Whether the lengths are those at an LR of 1."""
        return self.direction is not None


@torch.no_grad()
def open_step(optimizer: Optimizer, counted: Counted, with_closure: bool, buffers: Buffers) -> Open:
    """Before a step: remember where the weights are that may move. A closure may still compute their gradients."""

    def may_move(weight: Tensor) -> bool:
        return weight.requires_grad if with_closure else weight.grad is not None

    counted = counted.only([i for i, weight in enumerate(counted.weights) if may_move(weight)])
    direction = None if counted.is_low_precision else known_direction(optimizer)
    weights, before = [shards.local(weight) for weight in counted.weights], []
    if direction is None:
        before = [_buffer(buffers, weight, part) for weight, part in zip(counted.weights, weights, strict=True)]
        _each(torch._foreach_copy_, before, weights)
        weights = before  # in float32 at least
    elif direction == "grad" and not with_closure:
        before = _gradients(counted)
    return Open(counted, with_closure, direction, before, _each(torch._foreach_norm, weights))


@torch.no_grad()
def close_step(optimizer: Optimizer, step: Open) -> tuple[Tensor, Counted] | None:
    """After a step: (2, L) how far the weights moved and how long they were, and which weights these are; None for none."""
    counted, norms, before = step.counted, step.norms, step.before
    if step.with_closure:  # now it is known which have a gradient
        there = [i for i, weight in enumerate(counted.weights) if weight.grad is not None]
        counted, norms = counted.only(there), [norms[i] for i in there]
        before = [before[i] for i in there] if before else []
    if not counted.weights:
        return None
    if step.direction == "momentum_buffer":
        directions = [dense(optimizer.state[weight]["momentum_buffer"]) for weight in counted.weights]
    elif step.direction == "grad":
        directions = [dense(gradient) for gradient in before or _gradients(counted)]
    else:
        torch._foreach_sub_(before, [shards.local(weight) for weight in counted.weights])
        directions = before
    lengths = counted.lengths(torch._foreach_norm(directions), norms)  # type: ignore[arg-type]
    found_inf = getattr(optimizer, "found_inf", None)  # of AMP with a fused optimizer, which skips such a step
    if found_inf is not None:
        lengths[0] /= (found_inf == 0).to(lengths.device)
    return lengths, counted


def known_direction(optimizer: Optimizer) -> str | None:
    """Where the step that was subtracted can be read without a copy of the weights: `momentum_buffer`, `grad`, or nowhere.

    Exactly torch's SGD subtracts its momentum buffer, whatever dampening and weight decay are, and without momentum and weight
    decay the gradient. Nesterov's step is neither. A fused optimizer under AMP may hold gradients that are still scaled.
    """
    groups = optimizer.param_groups
    if type(optimizer) is not SGD or any(group["nesterov"] or group["differentiable"] for group in groups):
        return None
    if all(group["momentum"] for group in groups):
        return "momentum_buffer"
    is_scaled = getattr(optimizer, "grad_scale", None) is not None
    is_plain = not any(group["momentum"] or group["weight_decay"] for group in groups)
    return "grad" if is_plain and not is_scaled else None


def is_the_gradient(optimizer: Optimizer) -> bool:
    """Whether the next step is the gradient, but for weight decay: torch's SGD without momentum."""
    if type(optimizer) is not SGD or getattr(optimizer, "grad_scale", None) is not None:
        return False
    return not any(group["momentum"] for group in optimizer.param_groups)


def _buffer(buffers: Buffers, weight: Tensor, part: Tensor) -> Tensor:
    buffer = buffers.get(weight)
    if buffer is None or buffer.shape != part.shape or buffer.device != part.device:
        dtype = torch.float32 if part.dtype in LOW_PRECISION else part.dtype
        buffer = buffers[weight] = torch.empty_like(part, dtype=dtype)
    return buffer


def _gradients(counted: Counted) -> list[Tensor]:
    return [weight.grad for weight in counted.weights if weight.grad is not None]


def _each(call: Any, *lists: list[Tensor]) -> list[Tensor]:
    """A foreach function, which does not take empty lists."""
    return call(*lists) if lists[0] else []
