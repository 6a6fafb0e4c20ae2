"""What sets the LRs of a population: one schedule network per member, or a table.

Policies work on the device and in place, and never wait for it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from mlrsnet import _features
from mlrsnet._engine.contract import Rule
from mlrsnet._engine.device import COUNTS, advance_on_device, fused_members
from mlrsnet._engine.step import Carry, begin
from mlrsnet._features import Horizon
from mlrsnet._numbers import DEVICE
from mlrsnet.schedule import Schedule


class Policy(Protocol):
    """Gives each member an LR from its loss. Buffers are never replaced, because a captured step refers to them.

    A policy may also have `structures`, one per member, if its LRs follow from the steps taken so far (see `measured`), and the
    `gamma` of a schedule. If that is measured, `begin` gets one more tensor: the shares of the LR that are kept until the loss
    has fallen (see `ScheduleNet.careful`).
    """

    @property
    def is_relative(self) -> bool:
        """Whether the LRs are relative to the length of the weights; see `mlrsnet._engine.relative`."""

    def configure(self, values: Tensor) -> None:
        """Set what the LRs follow from, one row per member: (members, size) weights, or (members, steps) factors."""

    def begin(self, total_steps: int, scale: Tensor, num_classes: Tensor) -> None:
        """Start new trainings. `scale` (the optimizer's) and `num_classes` (NaN where numbers are predicted) have one value per
        member.
        """

    def lrs(self, losses: Tensor) -> Tensor:
        """(members,) LRs of the next step."""


class Networks:
    """A schedule with separate weights for each member: many `LearnedLR` at once.

    Args:
        schedule: gives the network and the range of the LR; it must have one phase.
        members: how many networks.
        device: where they run.
        dtype: in which they compute, that of the losses.
        fused: on CUDA, in float32, run a step of all `LSTMNet` or `TrendNet` in one Triton kernel.
    """

    def __init__(
        self,
        schedule: Schedule,
        members: int,
        device: torch.device,
        *,
        dtype: torch.dtype = torch.float32,
        fused: bool = True,
    ) -> None:
        if schedule.num_phases != 1:
            raise ValueError(f"schedule must have one phase, got {schedule.num_phases}: whole trainings need no more")
        self.rule, gamma = Rule(schedule), schedule.card.gamma
        self.is_relative, self.gamma = gamma.is_relative, gamma
        self.structures = ["weighted"] * members if gamma.is_measured else None
        self.weights = {
            name: torch.empty(members, 1, *weight.shape, dtype=dtype, device=device)
            for name, weight in schedule.net.named_parameters()
        }
        state = schedule.net.initial_state().to(device, dtype)
        self.counts = torch.zeros(members, COUNTS, dtype=torch.int64, device=device)
        self.values = torch.empty(members, 3, dtype=dtype, device=device)
        self.memory = state.expand(members, *state.shape).clone()
        self.carry = Carry._make((*self.counts[:, :5].unbind(1), *self.values.unbind(1), self.memory))
        # Torch divides two int64 tensors in float32: in double precision, progress needs a float64 divisor.
        steps_type = torch.float64 if dtype == torch.float64 else torch.int64
        self.total_steps = torch.ones((), dtype=steps_type, device=device)
        self.scale, self.num_classes = torch.empty(2, members, dtype=dtype, device=device)
        is_fused = fused and dtype == torch.float32
        self.kernel: Any = fused_members(self.rule, members, device) if is_fused else None
        self._advance = torch.vmap(self._advance_one)

    def configure(self, values: Tensor) -> None:
        """Set the weights (members, size), each row as `torch.nn.utils.parameters_to_vector` writes it."""
        size = sum(weight[0].numel() for weight in self.weights.values())
        if values.shape[1] != size:
            raise ValueError(f"values must have {size} weights per row, got {values.shape[1]}: use the same network")
        flat, end = values.to(self.values), 0
        for weight in self.weights.values():
            start, end = end, end + weight[0].numel()
            weight.copy_(flat[:, start:end].view_as(weight))
        if self.kernel is not None:
            self.kernel.set_weights(flat)

    def begin(self, total_steps: int, scale: Tensor, num_classes: Tensor, waits: Tensor | None = None) -> None:
        """See `Policy`."""
        self.total_steps.fill_(total_steps)
        self.scale.copy_(scale)
        self.num_classes.copy_(num_classes)
        for value, start in zip(self.carry, begin(self.rule.schedule.net.initial_state(), 0.0), strict=True):
            value.copy_(start)
        self.counts[:, 5] = total_steps
        if waits is not None:
            self.memory.copy_(self.rule.schedule.net.careful(self.memory, waits))

    def divisors(self) -> Tensor:
        """(members,) what the losses of the last training were divided by before the networks read them."""
        scale, first = self.rule.schedule.net.loss_scale, self.carry.initial_loss
        return torch.ones_like(first) * _features.loss_divisor(scale, first, self.num_classes, DEVICE)

    def lrs(self, losses: Tensor) -> Tensor:
        """See `Policy`. A loss that is not finite changes neither the LR nor the memory."""
        losses = losses.to(self.values)
        if self.kernel is not None:
            state = {"counts": self.counts, "values": self.values, "memory": self.memory}
            self.kernel(losses, **state, scales=self.scale, num_classes=self.num_classes)
            return self.carry.lr
        after = self._advance(self.weights, self.carry, losses, self.scale, self.num_classes)
        for value, new in zip(self.carry, after, strict=True):
            value.copy_(new)
        return self.carry.lr

    def _advance_one(
        self, weights: dict[str, Tensor], carry: Carry, loss: Tensor, scale: Tensor, num_classes: Tensor
    ) -> Carry:
        return advance_on_device(self.rule, weights, carry, loss, Horizon(self.total_steps), scale, num_classes)


class Table:
    """Hand-designed schedules: LR = peak * scale * factor, with a peak per member and a factor per step.

    Args:
        peaks: (members,) LRs for plain SGD, on the device and in the type of the losses.
        most_steps: room for factors.
    """

    is_relative = False

    def __init__(self, peaks: Tensor, most_steps: int) -> None:
        self.peaks, self.scale = peaks, torch.ones_like(peaks)
        self.factors = peaks.new_zeros(len(peaks), most_steps)
        self.step = torch.zeros(1, dtype=torch.int64, device=peaks.device)

    def configure(self, values: Sequence[float] | Tensor) -> None:
        """Set the factors: (members, steps), or (steps,) for all members."""
        factors = torch.as_tensor(values, dtype=self.factors.dtype, device=self.factors.device)
        self.factors[:, : factors.shape[-1]] = factors

    def begin(self, total_steps: int, scale: Tensor, num_classes: Tensor) -> None:
        """See `Policy`."""
        self.scale.copy_(scale)
        self.step.zero_()

    def lrs(self, losses: Tensor) -> Tensor:
        """See `Policy`."""
        found = self.peaks * self.scale * self.factors.index_select(1, self.step).squeeze(1)
        self.step += 1
        return found


class Decays(Table):
    """A table of sizes, in which the loss is read as a `DecayNet` reads it: r = peak * scale * factor * what `Level.factor` says.

    Args:
        peaks: (members,) sizes, on the device and in the type of the losses.
        powers: (members, 3) of the fall and the rise, and the share k to wait with; 0, 0 and 1 do not read the loss.
        structures: (members) of `measured.STRUCTURES`.
        most_steps: room for factors.
    """

    def __init__(self, peaks: Tensor, powers: Tensor, structures: Sequence[str], most_steps: int) -> None:
        super().__init__(peaks, most_steps)
        self.powers, self.structures = powers, structures
        self.level = peaks.new_zeros(len(_features.Level._fields), len(peaks))
        self.total_steps = peaks.new_ones(())

    def begin(self, total_steps: int, scale: Tensor, num_classes: Tensor) -> None:
        """See `Policy`."""
        super().begin(total_steps, scale, num_classes)
        self.total_steps.fill_(total_steps)
        self.level.zero_()
        self.level[-1] = 1 - self.powers[:, 2]

    def lrs(self, losses: Tensor) -> Tensor:
        """See `Policy`."""
        losses = losses.to(self.peaks)
        progress = (self.step / self.total_steps).expand_as(losses)
        level = _features.Level(*self.level).after(losses, progress, DEVICE)
        self.level.copy_(torch.stack(level))
        return super().lrs(losses) * level.factor(self.powers[:, 0], self.powers[:, 1], DEVICE)
