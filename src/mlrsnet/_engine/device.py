"""The engine for tensor LRs: every number lives on the LR's device, nothing is read back, a CUDA graph can hold it all."""

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import stack_module_state

from mlrsnet import _check, _features
from mlrsnet._engine.contract import Moment, Report, Rule, Snapshot
from mlrsnet.nets import ScheduleNet, predict

SPARE_STEPS, MOST_STEPS = 1024, 2**22
"""The history has room for some steps past the horizon, up to a limit; its last place catches everything beyond."""


class Carry(NamedTuple):
    """What a step hands to the next. NaN: not known yet; phase -1: before the first step."""

    step: Tensor
    phase: Tensor
    nonfinite: Tensor
    unusable: Tensor
    outside: Tensor
    initial_loss: Tensor
    gamma: Tensor
    lr: Tensor
    memory: Tensor


def begin(state: Tensor, lr: float) -> Carry:
    """Before the first step: the network's initial memory and the optimizer's own LR, on the memory's device."""
    count = torch.zeros((), dtype=torch.int64, device=state.device)
    value = torch.full((), math.nan, device=state.device)
    return Carry(count, count - 1, count, count, count, value, value, torch.full_like(value, lr), state)


def advance(
    rule: Rule,
    weights: dict[str, Tensor],
    carry: Carry,
    loss: Tensor,
    total_steps: Tensor,
    scale: float | Tensor,
    num_classes: Tensor | None = None,
) -> Carry:
    """One step as a pure function of tensors, which `torch.vmap` batches; see `Rule` for what a step is.

    Args:
        weights: the phases' weights, stacked along the first dimension.
        loss: a float32 scalar.
        scale: the whole factor before gamma.
        num_classes: instead of the rule's, for trainings side by side that differ in it.
    """
    net, card, k = rule.schedule.net, rule.schedule.card, rule.schedule.num_phases
    classes = rule.num_classes if num_classes is None else num_classes
    finite = torch.isfinite(loss)
    initial_loss = torch.where(carry.initial_loss.isnan(), loss, carry.initial_loss)
    phase = torch.clamp(k * carry.step // total_steps, max=k - 1)

    begins = carry.phase < 0
    fresh = card.gamma.formula(torch.where(begins, initial_loss, loss), classes)
    renews = begins | (phase != carry.phase) if card.gamma.policy == "per-phase" else begins
    gamma = torch.where(renews & torch.isfinite(fresh) & (fresh > 0), fresh, carry.gamma)
    divisor = torch.ones_like(loss)
    if net.loss_scale == "log_classes" and classes is not None:
        divisor = divisor * (classes.log() if isinstance(classes, Tensor) else math.log(classes))
    elif net.loss_scale != "none":
        divisor = initial_loss
    usable = (gamma > 0) & (divisor > 0)  # false for NaN
    taken = finite & usable

    scaled = torch.where(taken, loss / divisor, 0.0)
    low, high = card.warn_outside
    if k == 1:
        chosen = {name: stacked[0] for name, stacked in weights.items()}
    else:
        chosen = {name: stacked.index_select(0, phase.view(1)).squeeze(0) for name, stacked in weights.items()}
    progress = _features.progress(carry.step, total_steps)
    factor, memory = predict(net, scaled.to(carry.memory.dtype), progress, carry.memory, chosen)
    lr = torch.clamp(scale * gamma * factor, rule.min_lr, rule.max_lr)
    return Carry(
        step=carry.step + taken,
        phase=torch.where(taken, phase, carry.phase),
        nonfinite=carry.nonfinite + ~finite,
        unusable=carry.unusable + (finite & ~usable),
        outside=carry.outside + (taken & ((scaled < low) | (scaled > high))),
        initial_loss=torch.where(taken, initial_loss, carry.initial_loss),
        gamma=torch.where(taken, gamma, carry.gamma),
        lr=torch.where(taken, lr, carry.lr),
        memory=torch.where(taken, memory, carry.memory),
    )


class DeviceEngine:
    """Algorithm 2 on a device. On CUDA a step of an `LSTMNet` or a `TrendNet` is one Triton kernel; elsewhere, plain torch calls.

    Buffers are allocated once and written in place, so a captured step stays valid across `restore` and `extend`.
    """

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
        if initial_loss is not None:
            rule.schedule.card.gamma(initial_loss, rule.num_classes, "initial_loss")
            rule.schedule.loss_divisor(initial_loss, rule.num_classes, "initial_loss")
        self.counts = torch.zeros(6, dtype=torch.int64, device=device)
        self.values = torch.full((3,), math.nan, dtype=torch.float32, device=device)
        self.ratio = torch.ones((), device=device)
        self._view(net.initial_state().to(device))
        self.carry.phase.fill_(-1)
        self.carry.lr.fill_(lr)
        if initial_loss is not None:
            self.carry.initial_loss.fill_(initial_loss)
        self.retired: list[Tensor] = []
        self.history = torch.empty(0, dtype=torch.float32, device=device)
        self.group_lrs = self.ratios = torch.empty(0, dtype=torch.float32, device=device)
        self.extend(total_steps)
        self.bind([lr], [1.0])
        self.kernel: Any = _kernel(rule, device) if fused else None
        if self.kernel is not None:
            self._try_kernel()

    def bind(self, lrs: list[float], ratios: list[float]) -> list[Tensor]:
        """Take over the parameter groups' LRs; group i's is the i-th tensor returned, alpha_t * ratios[i] from now on."""
        if len(lrs) != len(self.group_lrs):
            self.group_lrs, self.ratios = torch.empty(2, len(lrs), dtype=torch.float32, device=self.device)
        self.group_lrs.copy_(torch.tensor(lrs, dtype=torch.float32))
        self.ratios.copy_(torch.tensor(ratios, dtype=torch.float32))
        return list(self.group_lrs.unbind())

    @torch.no_grad()
    def step(self, loss: Tensor) -> None:
        """Advance by one loss; `group_lrs` holds the LRs afterwards."""
        scale = self.rule.scale * self.optimizer_scale
        if self.kernel is not None:
            with torch.cuda.device_of(loss):
                self.kernel(loss, scale, **self._buffers())
            return
        with torch.autocast(self.device.type, enabled=False):
            carry = advance(
                self.rule, self.weights, self.carry, loss.reshape(()).float(), self.total_steps, scale * self.ratio
            )
        taken = carry.step > self.carry.step
        self.group_lrs.copy_(torch.where(taken, carry.lr * self.ratios, self.group_lrs))
        place = torch.clamp(self._calls(), max=len(self.history) - 1)
        self.history.index_copy_(0, place.view(1), carry.lr.float().view(1))
        for buffer, value in zip(self.carry, carry, strict=True):
            buffer.copy_(value)

    def moment(self, loss: float) -> Moment:
        """What the network would read if `loss`, finite, came now; synchronises."""
        schedule, classes = self.rule.schedule, self.rule.num_classes
        step, phase, *_, total_steps = self.counts.tolist()
        initial_loss, gamma, _ = self.values.tolist()
        f_0 = loss if math.isnan(initial_loss) else initial_loss
        return Moment(
            schedule.loss_divisor(f_0, classes),
            _features.progress(step, total_steps),
            self.carry.memory.cpu(),
            self.rule.scale * self.optimizer_scale * (schedule.card.gamma(f_0, classes) if phase < 0 else gamma),
        )

    @torch.no_grad()
    def set_weights(self, nets: Sequence[ScheduleNet]) -> None:
        """Go on with other weights of the same networks, in place."""
        if self.kernel is not None:
            self.kernel.set_weights(nets)
            return
        for name, stacked in self.weights.items():
            stacked.copy_(torch.stack([net.get_parameter(name) for net in nets]))

    def set_memory(self, memory: Tensor) -> None:
        """Go on with another memory, in place."""
        self.carry.memory.copy_(memory)

    def copy_memory(self) -> Tensor:
        """The network's memory now."""
        return self.carry.memory.clone()

    def progress(self) -> Tensor:
        """u of the next step."""
        return _features.progress(self.carry.step, self.total_steps)

    def alpha(self) -> float:
        """The LR of the reference group now; synchronises."""
        return float(self.carry.lr)

    def extend(self, total_steps: int) -> None:
        """Set the horizon. The history grows; a step captured before goes on writing into the old, shorter one."""
        self.total_steps.fill_(total_steps)
        size = min(total_steps + SPARE_STEPS, MOST_STEPS)
        if size > len(self.history):
            self.retired.append(self.history)
            self.history = torch.full((size,), math.nan, dtype=torch.float32, device=self.device)
            self.history[: len(self.retired[-1])] = self.retired[-1]

    def report(self) -> Report:
        """Where it stands; synchronises."""
        counts, values = self.counts.tolist(), self.values.tolist()
        return Report(
            step=counts[0],
            phase=counts[1],
            nonfinite=counts[2],
            unusable=counts[3],
            outside=counts[4],
            initial_loss=values[0],
            gamma=values[1],
            lr=values[2],
        )

    def snapshot(self) -> Snapshot:
        """Everything that the next step depends on; synchronises."""
        kept = min(int(self._calls()), len(self.history) - 1)
        history = self.history[:kept].cpu().double()
        return Snapshot(
            **self.report(), memory=self.carry.memory.cpu().clone(), history=history, ratio=float(self.ratio)
        )

    def restore(self, saved: Snapshot) -> None:
        """Go on from a snapshot, in place."""
        counts = [saved["step"], saved["phase"], saved["nonfinite"], saved["unusable"], saved["outside"]]
        values = [saved["initial_loss"], saved["gamma"], saved["lr"]]
        self.counts[:5] = torch.tensor(counts, device=self.device)
        self.values.copy_(torch.tensor(values, dtype=torch.float32))
        self.carry.memory.copy_(saved["memory"])
        self.ratio.fill_(saved["ratio"])
        kept = saved["history"][: len(self.history) - 1]
        self.history[: len(kept)] = kept.to(self.history)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A pickle gives every view a storage of its own."""
        self.__dict__.update(state)
        self._view(self.carry.memory)

    def _view(self, memory: Tensor) -> None:
        """Names for the places of `counts` and `values`."""
        self.carry = Carry._make((*self.counts[:5], *self.values, memory))
        self.total_steps = self.counts[5]

    def _try_kernel(self) -> None:
        """Compile on copies, before a graph capture could be disturbed by it; without a C compiler, do without."""
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
            "ratio": self.ratio,
        }

    def _calls(self) -> Tensor:
        """Steps taken and not taken: how many LRs were in force so far."""
        return self.carry.step + self.carry.nonfinite + self.carry.unusable


def _kernel(rule: Rule, device: torch.device) -> Any:
    """The fused step, where this device and network have one."""
    kernel = _kernels(device)
    return kernel and kernel.FusedStep.build(rule, device)


def fused_members(rule: Rule, members: int, device: torch.device) -> Any:
    """The fused step of many networks at once, where this device and network have one and it can be compiled."""
    kernel = _kernels(device)
    fused = kernel and kernel.FusedMembers.build(rule, members, device)
    if fused is None:
        return None
    state = rule.schedule.net.initial_state().to(device)
    counts = torch.ones(members, 6, dtype=torch.int64, device=device)
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
    """The module with the kernels, where this device can run them."""
    if device.type != "cuda":
        return None
    try:
        from mlrsnet._engine import kernel
    except ImportError:  # no Triton on this platform
        return None
    return kernel
