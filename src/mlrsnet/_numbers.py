"""The numbers of a schedule: on the host for LRs that it can read, on a device for LRs that live there. A law is the same for both.

Both open a step with `open`, which gives an LR, and keep what the law remembers with `commit` once the step was taken.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlrsnet import _check
from mlrsnet.law import Facts, Law, Seen
from mlrsnet.ops import DEVICE, HOST, Operations, leaves, rebuilt
from mlrsnet.plan import Plan
from mlrsnet.sensors import Sensor, wide

MOST_LRS = 10_000
"""LRs of a history. Of a longer training every second one is kept, or every fourth, ..."""

FLOAT32_MAX = torch.finfo(torch.float32).max


@dataclass(frozen=True)
class Limits:
    """The user's: alpha = clip(scale * what the law says, low, high)."""

    scale: float = 1.0
    low: float = 0.0
    high: float = math.inf

    def applied(self, lr: Any, before: Any, o: Operations) -> Any:
        """Within the limits; an LR that float32 cannot hold leaves the one before."""
        return o.where(lr < FLOAT32_MAX, o.clamp(lr, self.low, self.high), before)


def make_limits(scale: float, min_lr: float, max_lr: float | None) -> Limits:
    """From the arguments of `LearnedLR`, checked."""
    low = _check.real("min_lr", min_lr)
    high = math.inf if max_lr is None else _check.real("max_lr", max_lr)
    if not 0 <= low <= high or high == 0:
        raise ValueError(
            f"min_lr and max_lr must satisfy 0 <= min_lr <= max_lr and max_lr > 0, got {min_lr!r} and {max_lr!r}"
        )
    return Limits(_check.positive("scale", scale), low, high)


def stride_for(total_steps: int) -> int:
    """One LR in so many is kept: a power of two.

    >>> stride_for(10_000), stride_for(10_001), stride_for(100_000)
    (1, 2, 16)
    """
    return 1 << (max(1, -(-total_steps // MOST_LRS)) - 1).bit_length()


class Host:
    """Python's own numbers, and numpy's for the memory of a network.

    Args:
        law: what decides an LR.
        facts: what is known before the first step.
        plan: the steps of the training.
        lr: alpha before the first step, the optimizer's own.
    """

    device: torch.device | None = None

    def __init__(self, law: Law, facts: Facts, plan: Plan, lr: float) -> None:
        self.law, self.lr, self.share = law, lr, 1.0
        self.state: Any = law.begin(facts)
        self.stride, self.lrs = 1, array("d")
        self.follow(plan)

    def begin(self, facts: Facts) -> None:
        """The first step is about to be taken, and more is known."""
        self.state = self.law.begin(facts)

    def follow(self, plan: Plan) -> None:
        """Set where progress goes."""
        self.plan, before = plan, self.stride
        self.stride = max(before, stride_for(plan.total_steps))
        if self.stride > before:
            self.lrs = self.lrs[:: self.stride // before]

    def tell(self, loss: float | Tensor) -> float | Tensor:
        """A loss for the next step, as it waits here. One on a GPU is read when the step comes."""
        return loss if isinstance(loss, Tensor) and loss.is_cuda else float(loss)

    def open(self, told: float | Tensor | None, sensor: Sensor, scale: Any, limits: Limits) -> float:
        """alpha of the step that is about to be taken. NaN stands for no loss, so a loss that is NaN becomes infinite."""
        self.loss = math.nan if told is None else float(told)
        if told is not None and self.loss != self.loss:
            self.loss = math.inf
        self.scale = float(scale) * self.share
        seen = Seen(self.loss, sensor.x, sensor.now, sensor.guess, self.scale, sensor.is_low)
        lr, self._after = self.law.advance(self.state, seen, self.plan, HOST)
        self.lr = limits.applied(lr, self.lr, HOST)
        return self.lr

    def write(self, groups: Sequence[dict[str, Any]], ratios: Sequence[float], left: Sequence[bool]) -> list[Any]:
        """Set the groups' LRs, in place where they are tensors, but for those that are `left` alone; says what was set."""
        given: list[Any] = []
        for place, (group, ratio) in enumerate(zip(groups, ratios, strict=True)):
            if left and left[place]:
                given.append(None)
                continue
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(self.lr * ratio)
            else:
                group["lr"] = self.lr * ratio
            given.append(float(group["lr"]))
        return given

    def set_share(self, share: float) -> None:
        """Multiply every LR by this from the next step on."""
        self.share = share

    def commit(self, step: int, skipped: Any = None) -> None:
        """The step was taken; `step` were taken before it."""
        self.state = self._after
        if step % self.stride == 0 and len(self.lrs) < MOST_LRS:
            self.lrs.append(self.lr)

    def read(self) -> tuple[Any, float, int | None, np.ndarray]:
        """The law's state and alpha as plain numbers; the steps taken if only this knows them; the LRs on record."""
        return self.state, self.lr, None, np.array(self.lrs)

    def restore(self, state: Any, lr: float, steps: int, lrs: Sequence[float]) -> None:
        """Continue from what `read` told."""
        self.state, self.lr, self.lrs = state, lr, array("d", lrs)


class Device:
    """Tensors on a device, written in place: nothing is read back, so a CUDA graph can hold a whole step.

    Args:
        law, facts, plan, lr: see `Host`.
        device: where the LRs are.
    """

    def __init__(self, law: Law, facts: Facts, plan: Plan, lr: float, device: torch.device) -> None:
        self.device, self.law = device, law.on(device)
        self._host_law = law
        self.state = _there(law.begin(facts), device)
        self.plan = Plan(*(torch.zeros((), dtype=torch.int64, device=device) for _ in plan))
        self.lr = torch.full((), lr, dtype=wide(device), device=device)
        self.loss = torch.full_like(self.lr, math.nan)
        self.share = torch.ones_like(self.lr)
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        self.lrs, self.losses = torch.full((2, MOST_LRS + 1), math.nan, dtype=wide(device), device=device)
        self.stride = 1
        self.every = torch.ones_like(self.clock)
        self.follow(plan)

    def begin(self, facts: Facts) -> None:
        """See `Host`."""
        self._put(self._host_law.begin(facts))

    def follow(self, plan: Plan) -> None:
        """See `Host`; in place, so that captured steps follow."""
        for place, number in zip(self.plan, plan, strict=True):
            place.fill_(number)
        stride = max(self.stride, stride_for(plan.total_steps))
        for kept in (self.lrs, self.losses):
            thinned = kept[:-1][:: stride // self.stride].clone()
            kept.fill_(math.nan)
            kept[: len(thinned)] = thinned
        self.stride = stride
        self.every.fill_(stride)

    def tell(self, loss: float | Tensor) -> float | Tensor:
        """See `Host`; without waiting for it."""
        if isinstance(loss, Tensor):
            there = loss.to(self.device, self.loss.dtype, non_blocking=self.device.type == "cuda")
            self.loss.copy_(torch.where(there.isnan(), math.inf, there))
        else:
            self.loss.fill_(math.inf if loss != loss else loss)
        return self.loss

    def open(self, told: object, sensor: Sensor, scale: Any, limits: Limits) -> Tensor:
        """See `Host`; whether a loss was told is on the device, since replays of a graph are not seen."""
        self.scale = scale * self.share
        seen = Seen(self.loss, sensor.x, sensor.now, sensor.guess, self.scale, sensor.is_low)
        lr, self._after = self.law.advance(self.state, seen, self.plan, DEVICE)
        self.lr.copy_(limits.applied(lr, self.lr, DEVICE))
        return self.lr

    def write(self, groups: Sequence[dict[str, Any]], ratios: Sequence[float], left: Sequence[bool]) -> list[Any]:
        """See `Host`; the tensors that hold them."""
        given: list[Any] = []
        for place, (group, ratio) in enumerate(zip(groups, ratios, strict=True)):
            given.append(None if left and left[place] else group["lr"])
            if given[-1] is not None:
                group["lr"].copy_(self.lr * ratio if ratio != 1 else self.lr)
        return given

    def set_share(self, share: float) -> None:
        """See `Host`; in place."""
        self.share.fill_(share)

    def commit(self, step: int, skipped: Tensor | None = None) -> None:
        """See `Host`; nothing is kept where `skipped` is not 0. The clock is here, since replays of a graph are not seen."""
        place = torch.where(self.clock % self.every == 0, self.clock // self.every, MOST_LRS).clamp(max=MOST_LRS)
        if skipped is not None:
            place = torch.where(skipped.reshape(()) == 0, place, MOST_LRS)
        for kept, now in ((self.lrs, self.lr), (self.losses, self.loss)):
            kept.index_copy_(0, place.view(1), now.view(1))
        old, new = list(leaves(self.state)), list(leaves(self._after))
        if skipped is not None:
            taken = skipped.reshape(()) == 0
            new = [torch.where(taken, b, a) for a, b in zip(old, new, strict=True)]
            self.clock += taken
        else:
            self.clock += 1
        for buffer, value in zip(old, new, strict=True):
            buffer.copy_(value)
        self.loss.fill_(math.nan)

    def read(self) -> tuple[Any, float, int | None, np.ndarray]:
        """See `Host`; waits for the device."""
        numbers = [one.cpu().numpy() if one.ndim else one.item() for one in leaves(self.state)]
        steps = int(self.clock)
        return rebuilt(self.state, iter(numbers)), float(self.lr), steps, self._kept(self.lrs, steps)

    def losses_since(self, steps: int) -> list[float]:
        """The losses on record after so many steps, NaN where none was told; waits for the device."""
        kept = self._kept(self.losses, int(self.clock))
        return kept[-(-steps // self.stride) :].tolist()

    def restore(self, state: Any, lr: float, steps: int, lrs: Sequence[float]) -> None:
        """See `Host`; in place."""
        self._put(state)
        self.lr.fill_(lr)
        self.clock.fill_(steps)
        self.lrs[: len(lrs)] = torch.as_tensor(lrs, dtype=self.lrs.dtype, device=self.device)

    def _kept(self, numbers: Tensor, steps: int) -> np.ndarray:
        return numbers[: min(MOST_LRS, -(-steps // self.stride))].double().cpu().numpy()

    def _put(self, state: Any) -> None:
        for buffer, value in zip(leaves(self.state), leaves(state), strict=True):
            buffer.copy_(torch.as_tensor(value, dtype=buffer.dtype, device=buffer.device))


def _there(state: Any, device: torch.device) -> Any:
    """A state of numbers and arrays as tensors of their own."""

    def one(value: Any) -> Tensor:
        if isinstance(value, np.ndarray):
            return torch.from_numpy(value.copy()).to(device)
        kind = torch.int64 if isinstance(value, int) else wide(device)
        return torch.full((), value, dtype=kind, device=device)

    return rebuilt(state, iter([one(value) for value in leaves(state)]))
