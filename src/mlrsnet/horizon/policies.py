"""What sets the LRs of a population: networks, one a member, or a table. On the device, in place, nothing read back."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from mlrsnet._engine.contract import Rule
from mlrsnet._engine.device import advance_on_device, fused_members
from mlrsnet._engine.step import Carry, begin
from mlrsnet.schedule import Schedule


class Policy(Protocol):
    """An LR a member, from its loss; a captured step holds its buffers, so they stay where they are."""

    @property
    def is_relative(self) -> bool:
        """Whether its LRs are parts of the weights' length; see `mlrsnet._engine.relative`."""

    def begin(self, total_steps: int, scale: Tensor, num_classes: Tensor) -> None:
        """Trainings begin: their horizon, and the optimizer's scale and the number of classes of each member."""

    def lrs(self, losses: Tensor) -> Tensor:
        """(members,) of the next step."""


class Networks:
    """A schedule with weights of its own for each member: `LearnedLR`, many at a time.

    `fused`: on CUDA with an `LSTMNet` or a `TrendNet`, a step of all of them is one Triton kernel instead of plain torch calls.
    """

    def __init__(self, schedule: Schedule, members: int, device: torch.device, *, fused: bool = True) -> None:
        if schedule.num_phases != 1:
            raise ValueError(f"schedule must have one phase, got {schedule.num_phases}: whole trainings need no more")
        self.rule, self.is_relative = Rule(schedule), schedule.card.gamma.policy == "relative"
        self.weights = {
            name: torch.empty(members, 1, *weight.shape, device=device)
            for name, weight in schedule.net.named_parameters()
        }
        state = schedule.net.initial_state().to(device)
        self.counts = torch.zeros(members, 6, dtype=torch.int64, device=device)
        self.values = torch.empty(members, 3, device=device)
        self.memory = state.expand(members, *state.shape).clone()
        self.carry = Carry._make((*self.counts[:, :5].unbind(1), *self.values.unbind(1), self.memory))
        self.total_steps = torch.ones((), dtype=torch.int64, device=device)
        self.scale, self.num_classes = torch.empty(2, members, device=device)
        self.kernel: Any = fused_members(self.rule, members, device) if fused else None
        self._advance = torch.vmap(self._one)

    def set_weights(self, flat: Tensor) -> None:
        """(members, size), each row as `torch.nn.utils.parameters_to_vector` would write it."""
        place = 0
        for weight in self.weights.values():
            size = weight[0].numel()
            weight.copy_(flat[:, place : place + size].view_as(weight))
            place += size
        if place != flat.shape[1]:
            raise ValueError(f"flat must have {place} weights a row, got {flat.shape[1]}: the network is another one")
        if self.kernel is not None:
            self.kernel.set_weights(flat)

    def begin(self, total_steps: int, scale: Tensor, num_classes: Tensor) -> None:
        """See `Policy`."""
        self.total_steps.fill_(total_steps)
        self.scale.copy_(scale)
        self.num_classes.copy_(num_classes)
        for value, start in zip(self.carry, begin(self.rule.schedule.net.initial_state(), 0.0), strict=True):
            value.copy_(start)
        self.counts[:, 5] = total_steps

    def divisors(self) -> Tensor:
        """(members,) what the networks see their losses divided by, after a training."""
        scale = self.rule.schedule.net.loss_scale
        if scale == "none":
            return torch.ones_like(self.scale)
        return self.num_classes.log() if scale == "log_classes" else self.carry.initial_loss

    def lrs(self, losses: Tensor) -> Tensor:
        """See `Policy`. A loss that is not finite leaves the LR and the memory as they were."""
        if self.kernel is not None:
            state = {"counts": self.counts, "values": self.values, "memory": self.memory}
            self.kernel(losses.float(), **state, scales=self.scale, num_classes=self.num_classes)
            return self.carry.lr
        after = self._advance(self.weights, self.carry, losses.float(), self.scale, self.num_classes)
        for value, new in zip(self.carry, after, strict=True):
            value.copy_(new)
        return self.carry.lr

    def _one(self, weights: dict[str, Tensor], carry: Carry, loss: Tensor, scale: Tensor, num_classes: Tensor) -> Carry:
        return advance_on_device(self.rule, weights, carry, loss, self.total_steps, scale, num_classes)


class Table:
    """Hand-designed schedules: each member's peak LR times a factor a step."""

    is_relative = False

    def __init__(self, peaks: Tensor, most_steps: int) -> None:
        self.peaks, self.scale = peaks, torch.ones_like(peaks)
        self.factors = peaks.new_zeros(len(peaks), most_steps)
        self.place = torch.zeros(1, dtype=torch.int64, device=peaks.device)

    def set_factors(self, factors: Sequence[float] | Tensor) -> None:
        """One a step, for all members (steps,) or for each (members, steps)."""
        new = torch.as_tensor(factors).to(self.factors)
        self.factors[:, : new.shape[-1]] = new

    def begin(self, total_steps: int, scale: Tensor, num_classes: Tensor) -> None:
        """See `Policy`; peaks are SGD's, carried over to other optimizers as a learned range would be."""
        self.scale.copy_(scale)
        self.place.zero_()

    def lrs(self, losses: Tensor) -> Tensor:
        """See `Policy`."""
        found = self.peaks * self.scale * self.factors.index_select(1, self.place).squeeze(1)
        self.place += 1
        return found
