"""What sets the LRs of a population: a table, one schedule network per member, or the default.

Policies work on the device and in place, and never wait for it. Their buffers are never replaced: a captured step refers to them.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlrsnet import algorithm2, sensors
from mlrsnet.default import Default
from mlrsnet.law import Facts, Law, Seen
from mlrsnet.ops import DEVICE, leaves, rebuilt
from mlrsnet.plan import Plan
from mlrsnet.ranges import optimizer_scale
from mlrsnet.schedule import Schedule
from mlrsnet_lab.horizon.stacked_models import Rows
from mlrsnet_lab.horizon.updates import Update


class Policy:
    """Gives each member an LR in each step."""

    update: Update

    def follow(self, rows: Rows, update: Update) -> None:
        """Set the LRs of these weights from now on."""
        self.update = update

    def configure(self, values: Tensor) -> None:
        """Set what the LRs follow from, one row per member: (members, size) weights, or (members, steps) factors."""

    def begin(self, total_steps: int, facts: Sequence[Facts]) -> None:
        """Start new trainings of these tasks, each with as many members as the others."""
        raise NotImplementedError

    def lrs(self, losses: Tensor, gradients: Tensor) -> Tensor:
        """(members,) LRs of the next step, which has these gradients (members, size)."""
        raise NotImplementedError

    def after(self, lrs: Tensor) -> None:
        """The step was taken."""


class Factors(Policy):
    """Hand-designed schedules: LR = peak * scale * factor, with a peak per member and a factor per step.

    Args:
        peaks: (members,) LRs for plain SGD, on the device and in the type of the losses.
        most_steps: room for factors.
    """

    def __init__(self, peaks: Tensor, most_steps: int) -> None:
        self.peaks, self.scale = peaks, torch.ones_like(peaks)
        self.factors = peaks.new_zeros(len(peaks), most_steps)
        self.step = torch.zeros(1, dtype=torch.int64, device=peaks.device)

    def configure(self, values: Sequence[float] | Tensor) -> None:
        """Set the factors: (members, steps), or (steps,) for all members."""
        factors = torch.as_tensor(values, dtype=self.factors.dtype, device=self.factors.device)
        self.factors[:, : factors.shape[-1]] = factors

    def begin(self, total_steps: int, facts: Sequence[Facts]) -> None:
        """See `Policy`."""
        self.scale.fill_(optimizer_scale(self.update.group))
        self.step.zero_()

    def lrs(self, losses: Tensor, gradients: Tensor) -> Tensor:
        """See `Policy`."""
        found = self.peaks * self.scale * self.factors.index_select(1, self.step).squeeze(1)
        self.step += 1
        return found


class ByLaw(Policy):
    """A law whose state has a number for each member.

    Args:
        law: gives the form of the state.
        members: how many trainings.
        device: where they run.
        dtype: of arrays in the state, such as a network's memory. Numbers have that of `sensors.wide`.
    """

    def __init__(self, law: Law, members: int, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.law, start = law, law.begin(Facts(num_classes=2))
        buffers = (
            torch.zeros(members, *numbers.shape, dtype=dtype if numbers.ndim else sensors.wide(device), device=device)
            for numbers in map(torch.as_tensor, leaves(start))
        )
        self.state: Any = rebuilt(start, buffers)
        self.plan = Plan(*torch.zeros(len(Plan._fields), dtype=sensors.wide(device), device=device))
        self.scale = torch.ones(members, dtype=sensors.wide(device), device=device)

    def begin(self, total_steps: int, facts: Sequence[Facts]) -> None:
        """See `Policy`."""
        for place, number in zip(self.plan, Plan.of(total_steps), strict=True):
            place.fill_(number)
        members = len(self.scale) // len(facts)
        for first, known in zip(range(0, len(self.scale), members), facts, strict=True):
            own = slice(first, first + members)
            self.law.check(known)
            self.scale[own] = self.law.carry_over(self.update.group, known)
            for place, number in zip(leaves(self.state), leaves(self.law.begin(known)), strict=True):
                place[own] = torch.as_tensor(number)

    def _keep(self, after: Any) -> None:
        for place, number in zip(leaves(self.state), leaves(after), strict=True):
            place.copy_(number)


class Networks(ByLaw):
    """A schedule with separate weights for each member.

    Args:
        schedule: gives the network and the range of the LR; it must have one phase.
        members, device: see `ByLaw`.
        dtype: in which the networks compute.
    """

    law: Schedule

    def __init__(
        self, schedule: Schedule, members: int, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> None:
        if schedule.num_phases != 1:
            raise ValueError(f"schedule must have one phase, got {schedule.num_phases}: whole trainings need no more")
        super().__init__(schedule, members, device, dtype)
        self.weights = {
            name: torch.empty(members, *weight.shape, dtype=dtype, device=device)
            for name, weight in schedule.net.named_parameters()
        }

    def configure(self, values: Tensor) -> None:
        """Set the weights (members, size), each row as `torch.nn.utils.parameters_to_vector` writes it."""
        size = sum(weight[0].numel() for weight in self.weights.values())
        if values.shape[1] != size:
            raise ValueError(f"values must have {size} weights per row, got {values.shape[1]}: use the same network")
        end = 0
        for weight in self.weights.values():
            start, end = end, end + weight[0].numel()
            weight.copy_(values[:, start:end].view_as(weight))

    def begin(self, total_steps: int, facts: Sequence[Facts]) -> None:
        """See `Policy`. Before a loss that counts nobody moves."""
        super().begin(total_steps, facts)
        self.state.lr.zero_()

    def divisors(self) -> Tensor:
        """(members,) what the losses of the last training were divided by before the networks read them."""
        return self.law.net.divisor(self.state.initial_loss, self.state.classes, DEVICE)

    def lrs(self, losses: Tensor, gradients: Tensor) -> Tensor:
        """See `Policy`. A loss that is not finite changes neither the LR nor the memory."""
        seen, net, gamma = Seen(losses.to(self.scale), scale=self.scale), self.law.net, self.law.card.gamma
        usual = self.law.warn_outside
        self._keep(algorithm2.advance(self.state, seen, self.plan, self._network, net, gamma, 1, usual, DEVICE))
        return self.state.lr

    def _network(self, loss: Tensor, progress: Tensor, phase: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        return self.law.net.predict(self.weights, loss, progress, memory, DEVICE)


class StackedSteps:
    """How far the weights of many trainings move in a step: what `sensors.Steps` sees of one, measured at all entries.

    x, now and guess of `law.Seen`, a number for each training.

    Args:
        rows: the weights.
        update: moves them.
    """

    def __init__(self, rows: Rows, update: Update) -> None:
        self.rows, self.is_gradient = rows, update.is_gradient
        self.counts, self.floors = self._numbers(sensors.count), self._numbers(sensors.shortest_length)
        self.n = sum(math.prod(shape) for shape in rows.shapes)
        self.x, self.now, self.guess = self.counts.new_zeros(3, len(rows.weights))
        self.shrink = self.counts.new_ones(len(rows.weights), len(rows.shapes))
        self._before = torch.zeros_like(rows.weights)

    def begin(self) -> None:
        """Nothing was measured yet. What is too long now is shrunk from now on."""
        shrink = sensors.LONGEST * self.floors / self._lengths(self.rows.weights)
        self.shrink.copy_(shrink.nan_to_num(nan=1.0).clamp(max=1.0))
        self.x.fill_(math.nan)

    def before(self, gradients: Tensor) -> None:
        """A step with these gradients (members, size) begins."""
        self._before.copy_(self.rows.weights)
        plain = torch.maximum(self._lengths(self._before) * self.shrink, self.floors)
        self.lengths, pulled = plain * self.counts, self._lengths(gradients)
        self.guess.copy_(sensors.first_square(pulled, plain, self.n, DEVICE))
        if self.is_gradient:
            self.now.copy_(sensors.relative_square(pulled * self.counts, self.lengths))

    def after(self, lrs: Tensor) -> None:
        """The step was taken, at these LRs (members,)."""
        moved = self._lengths(self.rows.weights - self._before)
        self.x.copy_(sensors.relative_square(moved * self.counts, self.lengths) / lrs.square())

    def _lengths(self, values: Tensor) -> Tensor:
        return self.rows.lengths(values).to(self.counts)

    def _numbers(self, of_shape: Any) -> Tensor:
        device = self.rows.weights.device
        return torch.tensor(list(map(of_shape, self.rows.shapes)), dtype=sensors.wide(device), device=device)


class Defaults(ByLaw):
    """The default schedule, which reads how far the weights of each member move.

    Args:
        members, device: see `ByLaw`.
    """

    law: Default

    def __init__(self, members: int, device: torch.device) -> None:
        super().__init__(Default(), members, device)

    def follow(self, rows: Rows, update: Update) -> None:
        """See `Policy`."""
        super().follow(rows, update)
        self.steps = StackedSteps(rows, update)

    def begin(self, total_steps: int, facts: Sequence[Facts]) -> None:
        """See `Policy`."""
        super().begin(total_steps, facts)
        self.steps.begin()

    def lrs(self, losses: Tensor, gradients: Tensor) -> Tensor:
        """See `Policy`."""
        self.steps.before(gradients)
        seen = Seen(losses.to(self.scale), self.steps.x, self.steps.now, self.steps.guess, self.scale)
        lrs, after = self.law.advance(self.state, seen, self.plan, DEVICE)
        self._keep(after)
        return lrs

    def after(self, lrs: Tensor) -> None:
        """See `Policy`."""
        self.steps.after(lrs)
