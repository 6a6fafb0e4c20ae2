"""`Meter`: measures the steps of an optimizer by its hooks, for the measured range. See `measured` for the equations.

The hooks see the weights right before and right after a step. So clipping, AMP, accumulation, weight decay and unknown optimizers
need no thought: what counts is how far the weights moved.
"""

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from mlrsnet._engine import measured, relative
from mlrsnet._engine.contract import Backend
from mlrsnet._engine.counted import Counted
from mlrsnet._engine.measured import DeviceMean, HostMean
from mlrsnet._engine.movement import Buffers, Open, close_step, is_the_gradient, open_step

MOST_WAITING = 16
"""Measured steps that wait to be read on the host, if nobody asks for an LR."""


class Meter:
    """Keeps `backend.ratio` at rho, the ratio for the next step.

    Args:
        backend: whose ratio.
        total_steps: of the whole training, for the window of the mean.
    """

    counted: Counted
    _buffers: Buffers
    _waiting: list[tuple[Tensor, list[float], Counted, int]]
    _open: Open | None
    _depth: int
    _losses_in_step: int
    _shrink: Tensor | None

    def __init__(self, backend: Backend, total_steps: int) -> None:
        self.backend = backend
        self.mean = HostMean(total_steps) if backend.on_host else DeviceMean(total_steps, backend.ratio.device)
        self.has_begun = self.has_stepped = False
        self.steps = 0
        self._groups: list[dict[str, Any]] = []
        self._shares: list[float] = []
        self._retired: list[Counted] = []
        self._forget()

    def bind(self, groups: Sequence[dict[str, Any]], shares: Sequence[float], main: int) -> None:
        """Measure the weights of these groups. If another group's LR is alpha now, that at `main`, the mean follows."""
        self._read()
        for group, share in zip(self._groups, self._shares, strict=True):
            if share and group is groups[main]:
                self.mean.rescale(share**-2)
                self.backend.ratio *= share
        self._groups, self._shares = list(groups), list(shares)
        counted = Counted.of(groups, shares, None if self.backend.on_host else self.backend.ratio.device)
        if self.counted.follow(counted):
            return
        counted.begin(dict(zip(map(id, self.counted.weights), self.counted.shrink, strict=True)))
        if self._shrink is not None:
            counted.set_shrink(self._shrink)
            self._shrink = None
        if self.backend.on_host:
            still = set(map(id, counted.weights))
            self._buffers = {weight: copy for weight, copy in self._buffers.items() if id(weight) in still}
        else:  # a step that was captured still uses them
            self._retired.append(self.counted)
        self.counted = counted

    def watch(self, optimizer: Optimizer) -> None:
        """Begin to measure. The hooks do not keep this object alive, and do nothing without it."""
        hooks = _Hooks(self)
        optimizer.register_step_pre_hook(hooks.enter)
        optimizer.register_step_post_hook(hooks.leave)

    def begin(self) -> None:
        """A loss has come: set the ratio for the step that follows."""
        self._losses_in_step += 1
        if self._losses_in_step > 1:  # a step that raised an error was never closed
            self._depth, self._open = 0, None
        self._read()
        if not self.has_stepped:
            self._guess()
        self.has_begun = True

    def enter(self, optimizer: Optimizer, with_closure: bool) -> None:
        """A step begins."""
        self._depth += 1
        if self._depth > 1:  # a subclass's step that calls its parent's
            return
        self._losses_in_step = 0
        self.steps += 1
        if not self.backend.on_host or measured.is_due(self.steps):
            self._open = open_step(optimizer, self.counted, with_closure, self._buffers)

    @torch.no_grad()
    def leave(self, optimizer: Optimizer) -> None:
        """A step ends."""
        self._depth = max(self._depth - 1, 0)
        if self._depth or self._open is None:
            return
        step, self._open = self._open, None
        found = close_step(optimizer, step)
        if found is None:
            return
        self.has_stepped = self.has_begun
        lengths, counted = found
        if isinstance(self.mean, HostMean):
            self._keep_for_host(lengths, counted, step.is_at_one)
        else:
            x = _part_on_device(lengths, counted, step.is_at_one)
            self.mean.add(x, self.backend.ratio, doubles=counted.is_low_precision)

    @torch.no_grad()
    def limit(self, optimizer: Optimizer) -> None:
        """The optimizer is about to step along its gradients: shorten a step that would be longer than r_t says.

        On the host only while every step is measured, since to read gradients is to wait for them. Not in low precision, where
        first steps may be too short to move anything.
        """
        counted, backend = self.counted, self.backend
        if not counted.weights or counted.is_low_precision or not is_the_gradient(optimizer):
            return
        if backend.on_host and self.steps > measured.ALWAYS:
            return
        rows = counted.gradients().flip(0)
        if backend.on_host:
            x = _part_on_host(rows, counted.shares, counted)
            share = measured.allowed_share(x, backend.ratio) if 0 < x < math.inf else 1.0
            if share < 1:
                backend.shorten(share)
        else:
            moved, lengths = counted.share_column * rows[0], counted.as_they_count(rows[1])
            share = measured.allowed_share(measured.relative_square(moved, lengths, counted.counts), backend.ratio)
            backend.shorten(share.nan_to_num(nan=1.0, posinf=1.0).clamp(max=1.0).float())

    def extend(self, total_steps: int) -> None:
        """Set the number of steps of the whole training; the window follows from now on."""
        self._read()
        self.mean.extend(total_steps)

    def numbers(self) -> tuple[float, float]:
        """The mean's numerator and weight; waits for the device."""
        self._read()
        return self.mean.numbers()

    def restore(self, numbers: tuple[float, float], steps: int, shrink: Tensor) -> None:
        """Continue from `numbers`, `steps`, `counted.shrink` and from the backend's ratio."""
        self.steps = steps
        self.counted.set_shrink(shrink)
        self._waiting, self._open, self._depth = [], None, 0
        self.mean.restore(numbers)
        is_new = float(self.backend.ratio) <= relative.SMALLEST_RATIO
        self.has_begun = not is_new
        self.has_stepped = numbers[1] > 0 or (self.counted.is_low_precision and not is_new)
        if is_new and not self.backend.on_host:  # a captured step may not compute it again
            self._guess()

    def __getstate__(self) -> dict[str, Any]:
        """Without copies of the weights."""
        self._read()
        kept = ("backend", "mean", "steps", "has_begun", "has_stepped", "_groups", "_shares")
        return {name: getattr(self, name) for name in kept} | {"_shrink": self.counted.shrink.clone()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        shrink = state.pop("_shrink")
        self.__dict__.update(state)
        self._retired = []
        self._forget()
        self._shrink = shrink

    def _forget(self) -> None:
        """No step is open, nothing waits, and no weights are known."""
        self.counted = Counted([], [], [], None)
        self._buffers, self._waiting, self._open, self._shrink = {}, [], None, None
        self._depth = self._losses_in_step = 0

    def _keep_for_host(self, rows: Tensor, counted: Counted, at_one: bool) -> None:
        """Read at once on a CPU. Elsewhere the next loss is read first, and by then this is known too."""
        lrs = [float(lr) for lr in counted.lrs()]
        if all(lrs):
            factors = [s if at_one else s / lr for s, lr in zip(counted.shares, lrs, strict=True)]
            stands_for = measured.EVERY if self.steps > measured.ALWAYS else 1
            self._waiting.append((rows, factors, counted, stands_for))
        if rows.device.type == "cpu" or len(self._waiting) > MOST_WAITING:
            self._read()

    def _read(self) -> None:
        """Count what waits, on the host, and set the ratio."""
        if not isinstance(self.mean, HostMean):
            return
        waiting, self._waiting = self._waiting, []
        for rows, factors, counted, steps in waiting:
            x = _part_on_host(rows, factors, counted)
            if not self.mean.add(x, steps) and x == 0 and not self.mean.weight and counted.is_low_precision:
                self.backend.ratio *= 2
        if self.mean.weight:
            self.backend.ratio = self.mean.ratio

    @torch.no_grad()
    def _guess(self) -> None:
        """Set the ratio of a first step, if nothing has been measured yet."""
        counted = self.counted
        if not counted.weights or (isinstance(self.mean, HostMean) and self.mean.weight):
            return
        lengths, gradients = counted.gradients().to(counted.device)
        lengths, gradients = counted.as_they_count(lengths), counted.share_column * gradients
        first = measured.first_ratio(lengths, gradients, counted.root_size)
        if isinstance(self.mean, HostMean):
            self.backend.ratio = float(first)
        else:
            self.mean.begin(first, self.backend.ratio)


def _part_on_device(rows: Tensor, counted: Counted, at_one: bool) -> Tensor:
    """x, from (2, L) lengths. `at_one`: they are those at an LR of 1, and only an LR of 0 matters."""
    lrs = [lr if isinstance(lr, Tensor) else torch.full((), lr, device=rows.device) for lr in counted.lrs()]
    lr = lrs[0] if counted.has_one_group else torch.stack([one.to(rows.device) for one in lrs])
    moved = rows[0] * lr / lr if at_one else rows[0] / lr
    if any(share != 1 for share in counted.shares):
        moved = moved * counted.share_column
    return measured.relative_square(moved, counted.as_they_count(rows[1]), counted.counts)


def _part_on_host(rows: Tensor, factors: list[float], counted: Counted) -> float:
    """x as a number. In numpy, whose calls cost less than torch's at this size."""
    moved, lengths = rows.cpu().numpy().astype(np.float64)
    with np.errstate(all="ignore"):  # what is not finite is not counted
        moved *= factors[0] if counted.has_one_group else factors
        lengths = np.maximum(lengths * counted.shrink.numpy(), counted.floors.numpy())
        return float(measured.relative_square(moved, lengths, counted.counts.numpy()))


class _Hooks:
    """What an optimizer calls before and after a step."""

    def __init__(self, meter: Meter) -> None:
        self._meter = weakref.ref(meter)

    def enter(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            _uncompiled(self.enter, optimizer, args, kwargs)
            return
        meter = self._meter()
        if meter is not None:
            meter.enter(optimizer, any(one is not None for one in (*args[1:], *kwargs.values())))

    def leave(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            _uncompiled(self.leave, optimizer, args, kwargs)
            return
        meter = self._meter()
        if meter is not None:
            meter.leave(optimizer)


@torch._disable_dynamo
def _uncompiled(call: Any, *arguments: Any) -> None:
    """Out of a compiled step: the meter's numbers change in every step, and would compile it again and again."""
    call(*arguments)
