"""The backend for tensor LRs: every number lives on the LR's device, nothing is read back, a CUDA graph can hold it all."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import stack_module_state

from mlrsnet import _check, _features
from mlrsnet._engine import contract, relative
from mlrsnet._engine.contract import Moment, Rule, Snapshot, Status
from mlrsnet._engine.step import Carry, advance, status_of
from mlrsnet._features import Horizon
from mlrsnet._numbers import DEVICE
from mlrsnet.nets import ScheduleNet, predict

SPARE_STEPS, MOST_STEPS = 1024, 2**22
"""The history has room for some steps past the end, up to a limit. Its last place catches everything beyond."""

COUNTS = 8
"""Whole numbers of a training: those of `Carry`, then its `Horizon`."""

FLOAT32_MAX = torch.finfo(torch.float32).max


def advance_on_device(
    rule: Rule,
    weights: dict[str, Tensor],
    carry: Carry,
    loss: Tensor,
    horizon: Horizon,
    scale: float | Tensor,
    num_classes: Tensor | None = None,
) -> Carry:
    """`step.advance` of tensors, which `torch.vmap` batches. `weights`: of all phases, stacked along the first dimension."""
    net = rule.schedule.net

    def network(scaled: Tensor, progress: Tensor, phase: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        chosen = {name: _of_phase(stacked, phase) for name, stacked in weights.items()}
        return predict(net, scaled.to(memory.dtype), progress, memory, chosen)

    return advance(rule, carry, loss, horizon, scale, network, DEVICE, num_classes)


def _of_phase(stacked: Tensor, phase: Tensor) -> Tensor:
    return stacked[0] if len(stacked) == 1 else stacked.index_select(0, phase.view(1)).squeeze(0)


class DeviceBackend:
    """See `contract.Backend`. On CUDA a step of an `LSTMNet` or a `TrendNet` is one Triton kernel, else plain torch calls.

    Buffers are allocated once and written in place, so a captured step stays valid across `restore` and `set_horizon`.
    """

    on_host = False
    given: Sequence[float] = ()

    def __init__(
        self,
        rule: Rule,
        total_steps: int,
        initial_loss: float | None,
        lr: float,
        device: torch.device,
        *,
        fused: bool = True,
    ) -> None:
        net = rule.schedule.net
        self.rule, self.device, self.optimizer_scale = rule, device, 1.0
        phases = [copy.deepcopy(phase).to(device) for phase in rule.schedule.phases]
        self.weights = {name: stacked.detach() for name, stacked in stack_module_state(phases)[0].items()}  # type: ignore[arg-type]
        self.counts = torch.zeros(COUNTS, dtype=torch.int64, device=device)
        self.values = torch.full((3,), math.nan, dtype=torch.float32, device=device)
        self.ratio = torch.full((), relative.initial_ratio(rule), device=device)
        self._view(net.initial_state().to(device))
        self.carry.phase.fill_(-1)
        self.carry.lr.fill_(lr)
        if initial_loss is not None:
            contract.check_first_loss(rule, initial_loss, "initial_loss")
            self.carry.initial_loss.fill_(initial_loss)
        self.last: tuple[Tensor, Tensor, Tensor] | None = None  # what the last step began with
        if rule.schedule.card.gamma.is_relative:
            self.last = (self.counts.clone(), self.values.clone(), self.carry.memory.clone())
        self.last_loss = self.carry.lr
        self.retired: list[tuple[Tensor, Tensor]] = []
        self.history, self.losses = torch.empty(2, 0, dtype=torch.float32, device=device)
        self.group_lrs, self.ratios = torch.ones(2, 1, dtype=torch.float32, device=device)
        self.lrs: list[Tensor] = []
        self.set_horizon(Horizon(total_steps))
        self.kernel: Any = _kernel(rule, device) if fused else None
        if self.kernel is not None:
            self._try_kernel()

    def bind(self, groups: list[dict[str, Any]], ratios: list[float]) -> list[float]:
        """See `Backend`. The groups' LRs become tensors of this backend: nothing is copied in a step, and groups that were
        made from one default tensor no longer share it.
        """
        if len(groups) != len(self.group_lrs):
            self.group_lrs, self.ratios = torch.empty(2, len(groups), dtype=torch.float32, device=self.device)
        self.group_lrs.copy_(torch.tensor([float(group["lr"]) for group in groups]))
        self.ratios.copy_(torch.tensor(ratios))
        self.lrs = list(self.group_lrs.unbind())
        for group, lr in zip(groups, self.lrs, strict=True):
            group["lr"] = lr
        return [float(ratio) for ratio in torch.tensor(ratios)]

    def is_bound(self, groups: list[dict[str, Any]]) -> bool:
        """See `Backend`; by the groups' LR tensors."""
        return len(groups) == len(self.lrs) and all(a["lr"] is b for a, b in zip(groups, self.lrs, strict=True))

    def step(self, loss: float | Tensor) -> None:
        """See `Backend`."""
        self.last_loss = self._here(loss)
        if self.last is not None:
            for kept, now in zip(self.last, (self.counts, self.values, self.carry.memory), strict=True):
                kept.copy_(now)
        self._take(self.last_loss)

    def redo(self, ratio: Tensor) -> None:
        """See `Backend`; always, since nothing is read back."""
        assert self.last is not None
        self.set_ratio(ratio)
        horizon = self.counts[5:].clone()
        for kept, now in zip(self.last, (self.counts, self.values, self.carry.memory), strict=True):
            now.copy_(kept)
        self._take(self.last_loss)
        self.counts[5:] = horizon

    @torch.no_grad()
    def shorten(self, share: Tensor) -> None:
        """See `Backend`; in place."""
        lr = torch.minimum(self.carry.lr, (share * self.carry.lr).clamp(min=self.rule.min_lr))
        self.group_lrs.mul_(lr / self.carry.lr)
        self.carry.lr.copy_(lr)
        place = torch.clamp(self._calls() - 1, 0, len(self.history) - 1)
        self.history.index_copy_(0, place.view(1), lr.view(1))

    @torch.no_grad()
    def _take(self, loss: Tensor) -> None:
        scale = self.rule.scale * self.optimizer_scale
        if self.kernel is not None:
            with torch.cuda.device_of(loss):
                self.kernel(loss, scale, **self._buffers())
            return
        with torch.autocast(self.device.type, enabled=False):
            carry = advance_on_device(
                self.rule, self.weights, self.carry, loss.reshape(()).float(), self.horizon, scale * self.ratio
            )
        taken = carry.step > self.carry.step
        self.group_lrs.copy_(torch.where(taken, carry.lr * self.ratios, self.group_lrs))
        place = torch.clamp(self._calls(), max=len(self.history) - 1)
        self.history.index_copy_(0, place.view(1), carry.lr.float().view(1))
        self.losses.index_copy_(0, place.view(1), loss.float().view(1))
        for buffer, value in zip(self.carry, carry, strict=True):
            buffer.copy_(value)

    def set_ratio(self, ratio: Tensor) -> None:
        """See `Backend`."""
        self.ratio.copy_(relative.usable(ratio.to(self.device), self.ratio))

    def moment(self, loss: float) -> Moment:
        """See `Backend`; waits for the device."""
        return contract.moment(self, self.status(), Horizon._make(self.counts[5:].tolist()), loss)

    @torch.no_grad()
    def set_weights(self, nets: Sequence[ScheduleNet]) -> None:
        """See `Backend`; in place."""
        if self.kernel is not None:
            self.kernel.set_weights(nets)
            return
        for name, stacked in self.weights.items():
            stacked.copy_(torch.stack([net.get_parameter(name) for net in nets]))

    def set_memory(self, memory: Tensor) -> None:
        """See `Backend`; in place."""
        self.carry.memory.copy_(memory)

    def copy_memory(self) -> Tensor:
        """See `Backend`."""
        return self.carry.memory.clone()

    def set_gamma(self, gamma: float, phase: int) -> None:
        """See `Backend`; in place."""
        self.carry.gamma.fill_(gamma)
        self.carry.phase.fill_(phase)

    def progress(self) -> Tensor:
        """See `Backend`."""
        return _features.progress(self.carry.step, *self.horizon)

    def alpha(self) -> float:
        """See `Backend`."""
        return float(self.carry.lr)

    def set_horizon(self, horizon: Horizon) -> None:
        """See `Backend`. The history grows; a step that was captured before still writes into the old, shorter one."""
        for place, number in zip(self.horizon, horizon, strict=True):
            place.fill_(number)
        size = min(horizon.total_steps + SPARE_STEPS, MOST_STEPS)
        if size > len(self.history):
            size = min(max(size, 2 * len(self.history)), MOST_STEPS)  # an end that moves often copies seldom
            self.retired.append((self.history, self.losses))
            self.history = torch.full((size,), math.nan, dtype=torch.float32, device=self.device)
            self.losses = torch.zeros_like(self.history)
            for new, old in zip((self.history, self.losses), self.retired[-1], strict=True):
                new[: len(old)] = old

    def losses_since(self, calls: int) -> list[float]:
        """The losses after the first `calls`, 0 where they are not known; waits for the device."""
        kept = min(int(self._calls()), len(self.losses) - 1)
        return self.losses[min(calls, kept) : kept].tolist()

    def status(self) -> Status:
        """See `Backend`."""
        return status_of(Carry._make((*self.counts[:5].tolist(), *self.values.tolist(), None)))

    def snapshot(self) -> Snapshot:
        """See `Backend`."""
        kept = min(int(self._calls()), len(self.history) - 1)
        history = self.history[:kept].cpu().double()
        return Snapshot(
            **self.status(), memory=self.carry.memory.cpu().clone(), history=history, ratio=float(self.ratio)
        )

    def restore(self, saved: Snapshot) -> None:
        """See `Backend`; in place."""
        counts = [saved["step"], saved["phase"], saved["nonfinite"], saved["unusable"], saved["outside"]]
        values = [saved["initial_loss"], saved["gamma"], saved["lr"]]
        self.counts[:5] = torch.tensor(counts, device=self.device)
        self.values.copy_(torch.tensor(values, dtype=torch.float32))
        self.carry.memory.copy_(saved["memory"])
        self.ratio.fill_(saved["ratio"])
        kept = saved["history"][: len(self.history) - 1]
        self.history[: len(kept)] = kept.to(self.history)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A pickle gives every view its own storage: take the views again."""
        self.__dict__.update(state)
        self._view(self.carry.memory)

    def _view(self, memory: Tensor) -> None:
        """Name the places of `counts` and `values`."""
        self.carry = Carry._make((*self.counts[:5], *self.values, memory))
        self.horizon = Horizon._make(self.counts[5:])

    def _try_kernel(self) -> None:
        """Compile on copies, before any graph capture. Without a C compiler, use torch calls."""
        try:
            copies = {name: buffer.clone() for name, buffer in self._buffers().items()}
            with torch.cuda.device(self.device):
                self.kernel(self.carry.lr.clone(), 1.0, **copies)
        except Exception as error:  # whatever a compiler may say: the torch path computes the same
            self.kernel = None
            _check.warn(
                f"the fused step could not be compiled ({error}); LearnedLR uses slower torch calls on {self.device}"
            )

    def _buffers(self) -> dict[str, Tensor]:
        return {
            "counts": self.counts,
            "values": self.values,
            "memory": self.carry.memory,
            "group_lrs": self.group_lrs,
            "ratios": self.ratios,
            "history": self.history,
            "losses": self.losses,
            "ratio": self.ratio,
        }

    def _here(self, loss: float | Tensor) -> Tensor:
        """The loss on this device, without waiting for it; a float that overflows float32 is not finite."""
        if not isinstance(loss, Tensor):
            return torch.full((), loss if abs(loss) <= FLOAT32_MAX else loss * math.inf, device=self.device)
        return loss.to(self.device, non_blocking=self.device.type == "cuda")

    def _calls(self) -> Tensor:
        """How many steps were asked for, taken or not: how many LRs are on record."""
        return self.carry.step + self.carry.nonfinite + self.carry.unusable


def _kernel(rule: Rule, device: torch.device) -> Any:
    """The fused step, if this device and network have one."""
    kernel = _kernels(device)
    return kernel and kernel.FusedStep.build(rule, device)


def fused_members(rule: Rule, members: int, device: torch.device) -> Any:
    """The fused step of many networks at once, if this device and network have one and it compiles."""
    kernel = _kernels(device)
    fused = kernel and kernel.FusedMembers.build(rule, members, device)
    if fused is None:
        return None
    state = rule.schedule.net.initial_state().to(device)
    counts = torch.zeros(members, COUNTS, dtype=torch.int64, device=device)
    counts[:, 5] = 1
    numbers = torch.ones(members, 3, device=device)
    memory = state.expand(members, *state.shape).clone()
    try:
        with torch.cuda.device(device):
            fused(
                numbers[:, 0].clone(),
                counts=counts,
                values=numbers,
                memory=memory,
                scales=numbers[:, 0].clone(),
                num_classes=numbers[:, 0] + 1,
            )
    except Exception as error:  # whatever a compiler may say: the torch path computes the same
        _check.warn(f"the fused step could not be compiled ({error}); slower torch calls are used on {device}")
        return None
    return fused


def _kernels(device: torch.device) -> Any:
    """The module with the kernels, if this device can run them."""
    if device.type != "cuda":
        return None
    try:
        from mlrsnet._engine import kernel
    except ImportError:  # no Triton on this platform
        return None
    return kernel
