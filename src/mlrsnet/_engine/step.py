"""One step of Algorithm 2 as a pure function, of Python numbers on the host and of tensors on a device.

`kernel.py` has the same step as one Triton kernel; the tests run all three in lockstep.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mlrsnet import _features
from mlrsnet._engine.contract import Rule, Status
from mlrsnet._features import Horizon
from mlrsnet._numbers import Operations

Network = Callable[[Any, Any, Any, Any], tuple[Any, Any]]
"""(scaled loss, progress, phase, memory) -> (factor, memory)."""


class Carry(NamedTuple):
    """What a step hands to the next, as numbers or tensors; `Status` says what they mean."""

    step: Any
    phase: Any
    nonfinite: Any
    unusable: Any
    outside: Any
    initial_loss: Any
    gamma: Any
    lr: Any
    memory: Any

    @property
    def counters(self) -> tuple[Any, ...]:
        """nonfinite, unusable, outside."""
        return self[2:5]


def begin(memory: Any, lr: float) -> Carry:
    """Before the first step: the network's initial memory and the optimizer's own LR."""
    if not isinstance(memory, Tensor):
        return Carry(0, -1, 0, 0, 0, math.nan, math.nan, lr, memory)
    count = torch.zeros((), dtype=torch.int64, device=memory.device)
    value = torch.full((), math.nan, device=memory.device)
    return Carry(count, count - 1, count, count, count, value, value, torch.full_like(value, lr), memory)


def advance(
    rule: Rule,
    carry: Carry,
    loss: Any,
    horizon: Horizon,
    scale: Any,
    network: Network,
    operations: Operations,
    num_classes: Any = None,
) -> Carry:
    """One step.

    1. A loss that is not finite is counted; nothing else changes.
    2. f_0 is the first finite loss unless it was given. gamma follows the card. A loss without a valid gamma or divisor
       is counted as unusable; nothing else changes.
    3. The network of the current phase reads loss and progress, and its memory advances. alpha_t follows; t becomes t + 1.

    Args:
        rule: what decides the LR.
        carry: from the step before.
        loss: of this step.
        horizon: when the training ends, and how progress goes there.
        scale: the rule's scale, times the optimizer's, times |w| / |d| if the range is relative or measured.
        network: the schedule's networks.
        operations: `HOST` or `DEVICE`, as the numbers are.
        num_classes: replaces the rule's, for trainings side by side that differ in it.
    """
    o, card, phases = operations, rule.schedule.card, rule.schedule.num_phases
    classes = rule.num_classes if num_classes is None else num_classes
    finite = o.isfinite(loss)
    initial_loss = o.where(o.isnan(carry.initial_loss), loss, carry.initial_loss)
    phase = _features.phase_index(carry.step, horizon.total_steps, phases, o, horizon.begin, horizon.start)

    begins = carry.phase < 0
    renews = begins | (phase != carry.phase) if card.gamma.policy == "per-phase" else begins
    fresh = card.gamma.formula(o.where(begins, initial_loss, loss), classes, o)
    gamma = o.where(renews & o.isfinite(fresh) & (fresh > 0), fresh, carry.gamma)
    divisor = _features.loss_divisor(rule.schedule.net.loss_scale, initial_loss, classes, o)
    usable = (gamma > 0) & (divisor > 0)  # false for NaN
    taken = finite & usable

    scaled = o.where(taken, loss / o.where(taken, divisor, 1.0), 0.0)
    low, high = rule.schedule.warn_outside
    outside = taken & ((scaled < low) | (scaled > high))
    factor, memory = network(scaled, _features.progress(carry.step, *horizon), phase, carry.memory)
    lr = o.clamp(scale * gamma * factor, rule.min_lr, rule.max_lr)
    return Carry(
        step=carry.step + taken,
        phase=o.where(taken, phase, carry.phase),
        nonfinite=carry.nonfinite + o.invert(finite),
        unusable=carry.unusable + (finite & o.invert(usable)),
        outside=carry.outside + outside,
        initial_loss=o.where(taken, initial_loss, carry.initial_loss),
        gamma=o.where(taken, gamma, carry.gamma),
        lr=o.where(taken, lr, carry.lr),
        memory=o.where(taken, memory, carry.memory),
    )


def status_of(carry: Carry) -> Status:
    """A carry of Python numbers, by name."""
    return Status(
        step=carry.step,
        phase=carry.phase,
        initial_loss=carry.initial_loss,
        gamma=carry.gamma,
        lr=carry.lr,
        nonfinite=carry.nonfinite,
        unusable=carry.unusable,
        outside=carry.outside,
    )
