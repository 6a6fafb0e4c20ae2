"""`LearnedLR`: a torch LRScheduler that reads the current loss (the paper's meta-test, Algorithm 2).

loss -> schedule network -> factor x gamma -> `param_groups[i]["lr"]`, before the user's own `optimizer.step()`.
"""

import math
import os
import weakref
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from mlrsnet import _check
from mlrsnet._engine import relative
from mlrsnet._engine.contract import Rule, Snapshot
from mlrsnet._engine.device import MOST_STEPS, DeviceEngine
from mlrsnet._engine.groups import initial_ratios, owner, remember_initial_lrs, set_lr
from mlrsnet._engine.host import HostEngine
from mlrsnet._engine.ranks import Group, average_over_ranks
from mlrsnet._engine.replay import replay
from mlrsnet._engine.step_count import StepCounter
from mlrsnet.gamma import optimizer_scale
from mlrsnet.pretrained import load
from mlrsnet.schedule import Schedule

STATE_VERSION = 1
RULE_KEYS = ("num_classes", "scale", "min_lr", "max_lr")
STATE_KEYS = {"version", "schedule", "total_steps", "last_epoch", "pending", *Snapshot.__annotations__}
FLOAT32_MAX = torch.finfo(torch.float32).max
UNMEASURED = (
    "the schedule's relative range could not be measured, so the LR is 0: call step(loss) after loss.backward() and before "
    "zero_grad(), with weights that are not all 0"
)


class LearnedLR(LRScheduler):
    """Sets the LR of every step from that step's loss, with a learned schedule.

    Call `step(loss)` between `loss.backward()` and `optimizer.step()`. With float LRs the work is done on the host; with
    tensor LRs it is done on their device without any synchronisation, and the whole training step can be captured in a
    CUDA graph.

    Args:
        optimizer: any torch optimizer, or a wrapper that shares its groups. They keep the ratios of their initial LRs; the
            range is carried over from SGD to momentum and Adam by `mlrsnet.gamma.optimizer_scale`; a relative range needs torch's
            SGD, Adam or AdamW, with gradients that are not scaled (call `scaler.unscale_(optimizer)` first).
        schedule: a name, the path of a `.safetensors` file, `hf://owner/name`, or a `Schedule`.
        total_steps: optimizer steps the whole training will take.
        num_classes: classes, or size of the vocabulary; only some schedules need it and say so.
        initial_loss: f_0, the loss of the untrained network; without it, the first finite loss.
        scale: multiplies every LR.
        min_lr, max_lr: bounds for the LR of the first group with a non-zero LR; the others keep their ratio to it.
        on_nonfinite: `hold` keeps the last LR and counts (one warning); `raise` raises, reading the loss on the host.
        process_group: ranks whose losses are averaged first: the default group, another one, or False for none.

    >>> import torch, mlrsnet
    >>> model = torch.nn.Linear(4, 3)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> lr = mlrsnet.LearnedLR(optimizer, mlrsnet.Schedule(mlrsnet.LSTMNet()), total_steps=10, num_classes=3)
    >>> for _ in range(10):
    ...     loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(3, (8,)))
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     lr.step(loss)
    ...     optimizer.step()
    >>> 0 < lr.get_last_lr()[0] < 1
    True
    """

    _told_idle = _told_unmeasured = _told_end = False
    _is_accelerate_prepared = True  # so Accelerate's `prepare` returns it as it is: its wrapper steps once per process

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: str | os.PathLike[str] | Schedule = "universal",
        *,
        total_steps: int,
        num_classes: int | None = None,
        initial_loss: float | None = None,
        scale: float = 1.0,
        min_lr: float = 0.0,
        max_lr: float | None = None,
        on_nonfinite: str = "hold",
        process_group: Group = None,
    ) -> None:
        # Like ReduceLROnPlateau, without the base class's __init__: it would wrap optimizer.step to check an order
        # (scheduler after optimizer) that is the other way round here.
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}: pass the optimizer of the training"
            )
        if not (process_group is None or process_group is False or isinstance(process_group, dist.ProcessGroup)):
            raise TypeError(
                f"process_group must be a ProcessGroup, None or False, got {process_group!r}: pass dist.new_group(...)"
            )
        self.optimizer = optimizer = owner(optimizer)
        self.schedule = load(schedule)
        self.total_steps = _check.whole_number("total_steps", total_steps, hint="optimizer steps of the whole training")
        self.on_nonfinite = _check.one_of("on_nonfinite", on_nonfinite, ("hold", "raise"))
        self.process_group = process_group
        self.last_epoch = self._step_count = 0
        rule = self._rule(num_classes, scale, min_lr, max_lr)
        if initial_loss is not None:
            initial_loss = _check.real("initial_loss", initial_loss, "the loss of the untrained network")
        self._pending: list[float | Tensor] = []
        self._told = {"nonfinite": 0, "outside": 0, "unusable": 0}
        self._optimizer_steps = StepCounter()
        self._bound: list[Any] = []
        self._ratios: list[float] = []
        reference = remember_initial_lrs(optimizer)
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        device = next((group["lr"].device for group in optimizer.param_groups if isinstance(group["lr"], Tensor)), None)
        lr = float(optimizer.param_groups[reference]["lr"])
        self._engine: HostEngine | DeviceEngine
        if device is None:
            self._engine = HostEngine(rule, self.total_steps, initial_loss, lr)
        else:
            self._engine = DeviceEngine(rule, self.total_steps, initial_loss, lr, device)
        if self.is_relative:
            self._engine.ratio *= relative.SMALLEST_RATIO  # nothing has been measured
        self._bind()
        self._listen()

    def step(self, loss: float | Tensor | None = None) -> None:  # type: ignore[override]
        """Set the LR for the optimizer step that follows, from its loss; the mean of it and of what was observed.

        With no loss and nothing observed nothing changes, so frameworks may call `step()` as often as they like; one that never
        brings a loss is told so once.
        """
        loss = self._collect(loss)
        if loss is not None:
            self._check_order(loss)
            self._advance(loss)
            self._check_end(self.last_epoch)
        elif not self.last_epoch and not self._told_idle:
            self._told_idle = True
            _check.warn(
                "LearnedLR.step() was called without a loss before any was seen, so the LR is still the optimizer's own: call "
                "step(loss) between loss.backward() and optimizer.step(); Lightning and Transformers need the callback of "
                "mlrsnet.integrations"
            )

    def observe(self, loss: float | Tensor) -> None:
        """Queue the loss of a micro-batch, undivided and without the AMP scale; the next `step` uses the mean."""
        loss = _as_scalar(loss)
        self._pending.append(_wide(loss) if isinstance(loss, Tensor) else loss)  # a copy: the tensor may be reused

    def forget(self) -> None:
        """Drop what was observed since the last `step`, for a batch whose gradients are thrown away."""
        self._pending = []

    def trust_order(self) -> None:
        """Warn no more of optimizer steps without a loss, for a framework that steps where a batch was left out too."""
        self._optimizer_steps.trust()

    def extend(self, total_steps: int) -> None:
        """Prolong the training to `total_steps` in all; progress and phases follow the new horizon from the next step."""
        self.total_steps = _check.whole_number("total_steps", total_steps, self.total_steps, "a horizon can only grow")
        self._engine.extend(self.total_steps)

    def get_last_lr(self) -> list[Any]:
        """The LR each group uses now, as copies; tensors stay on their device."""
        lrs = (group["lr"] for group in self.optimizer.param_groups)
        return [lr.clone() if isinstance(lr, Tensor) else lr for lr in lrs]

    def get_lr(self) -> list[Any]:
        """The same as `get_last_lr`: the next LR is not known before its loss."""
        return self.get_last_lr()

    def check(self) -> dict[str, Any]:
        """What happened so far, read back to the host, with the warnings that device losses still owe.

        Returns:
            step, phase, gamma, initial_loss, lr, and how many losses were nonfinite or outside the learned range.

        Raises:
            ValueError: every loss on a device so far was one the range cannot be computed from.
        """
        report = self._engine.report()
        if report["unusable"] and not report["step"]:
            raise ValueError(self._no_range(report["unusable"]))
        self._warn(report)
        if self.is_relative and report["step"] and float(self._engine.ratio) <= relative.SMALLEST_RATIO:
            _check.warn(UNMEASURED)
        return {**report}

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and CPU tensors, readable with `torch.load(weights_only=True)`; synchronises."""
        snapshot = self._engine.snapshot()
        self._warn(snapshot)
        return {
            "version": STATE_VERSION,
            "schedule": self._schedule_number(),
            "total_steps": self.total_steps,
            "last_epoch": self.last_epoch,
            "pending": torch.tensor([float(loss) for loss in self._pending], dtype=torch.float64),
            **self._rule_numbers(),
            **snapshot,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on exactly where the saved run stopped; before or after the optimizer's own `load_state_dict`."""
        state = dict(state_dict)
        rule = {name: state.pop(name) for name in RULE_KEYS if name in state}  # the first states had none
        if state.get("version") != STATE_VERSION or state.keys() != STATE_KEYS:
            raise ValueError(
                f"state_dict must be one saved by LearnedLR.state_dict (version {STATE_VERSION}, keys {sorted(STATE_KEYS)}), "
                f"got version {state.get('version')!r}, keys {sorted(state)}: pass the state saved for the scheduler"
            )
        if state["schedule"] != self._schedule_number():
            raise ValueError(
                f"the state was saved with another schedule than {self.schedule!r}: construct LearnedLR with the saved run's"
            )
        if state["total_steps"] != self.total_steps:
            _check.warn(
                f"the saved run had total_steps={state['total_steps']}, which replaces {self.total_steps}; "
                "call extend(total_steps) to prolong it"
            )
        for name, value in self._rule_numbers().items():
            if rule.get(name, value) != value:
                _check.warn(
                    f"the saved run had {name}={rule[name] or 'none'}, this one has {value or 'none'}, and gives other LRs: "
                    f"construct LearnedLR with the saved run's {name} to go on as it would have"
                )
        self.total_steps, self.last_epoch = state["total_steps"], state["last_epoch"]
        self._step_count = self.last_epoch
        self._pending = state["pending"].tolist()
        self._optimizer_steps.take()
        self._engine.extend(self.total_steps)
        self._engine.restore(state)  # type: ignore[arg-type]
        self._told = {kind: state[kind] for kind in self._told}  # what was told stays told
        self._bind()
        for group, ratio in zip(self.optimizer.param_groups, self._ratios, strict=True):
            set_lr(group, state["lr"] * ratio)

    def export_lambda(self, optimizer: Optimizer | None = None) -> LambdaLR:
        """The LRs of the run so far as a plain `LambdaLR`, for exact replay without losses or networks.

        Args:
            optimizer: a new optimizer with the same parameter groups; this schedule's own one if None. It is stepped as
                usual in torch: `optimizer.step()`, then `scheduler.step()`. Past the end the last LR holds.
        """
        snapshot = self._engine.snapshot()
        calls = snapshot["step"] + snapshot["nonfinite"] + snapshot["unusable"]
        known = int(torch.isfinite(snapshot["history"]).sum())
        if not calls or known < calls:
            raise RuntimeError(
                f"{known} of {calls} LRs are on record: run the schedule first; capture a CUDA graph again after extend(); "
                f"with a tensor LR, keep total_steps as long as the run and below {MOST_STEPS:,}"
            )
        return replay(optimizer or self.optimizer, snapshot["history"].tolist(), self._ratios)

    def _collect(self, loss: float | Tensor | None) -> float | Tensor | None:
        """The mean of a loss and what was observed, which is used up by it, over all ranks; None where there is neither."""
        if loss is not None:
            loss = _as_scalar(loss)
        if self._pending:
            loss = _mean(self._pending if loss is None else [*self._pending, loss])
            self.forget()
        return None if loss is None else average_over_ranks(loss, self.process_group)

    def _check_order(self, loss: float | Tensor) -> None:
        """Say once that the optimizer did not step once after every `step(loss)`; a graph's replays are not seen here."""
        if isinstance(loss, Tensor) and _is_captured(loss):
            self.trust_order()
        steps = self._optimizer_steps.too_many(1 if self.last_epoch else 0)
        if steps and not self.last_epoch:
            _check.warn(
                f"the optimizer took {steps} step(s) before the first LearnedLR.step(loss), at its own LR: call loss.backward(), "
                "then step(loss), then optimizer.step(); other schedulers step last, this one sets the LR of the step that follows"
            )
        elif steps:
            _check.warn(
                f"the optimizer took {steps} steps since the last LearnedLR.step(loss), all at one LR: call step(loss) before "
                "every optimizer.step(), not once an epoch"
            )

    def _check_end(self, steps: int) -> None:
        """Say once that the training goes on after its horizon."""
        if steps > self.total_steps and not self._told_end:
            self._told_end = True
            _check.warn(
                f"step {steps} is past total_steps={self.total_steps}, which counts optimizer steps, not epochs; the schedule "
                "stays where it ends: pass the steps of the whole training, or call LearnedLR.extend(total_steps) to prolong it"
            )

    def _advance(self, loss: float | Tensor) -> None:
        """One step of the engine, and the groups' LRs."""
        if not self._is_bound():
            self._bind()
        if self.is_relative:
            self._measure()
        if isinstance(self._engine, HostEngine):
            if isinstance(loss, Tensor) and _is_captured(loss):
                raise RuntimeError(
                    "a float LR must read the loss and cannot be captured in a graph: give the optimizer a tensor LR"
                )
            self._step_on_host(self._engine, float(loss))
        else:
            self._step_on_device(self._engine, loss)
        self.last_epoch += 1
        self._step_count += 1

    def _measure(self) -> None:
        """|w| / |d| of the step that follows."""
        engine, new = self._engine, relative.ratio(self.optimizer, self._ratios)
        if isinstance(engine, HostEngine):
            engine.ratio = float(relative.usable(new, torch.full_like(new, engine.ratio)))
            if engine.ratio <= relative.SMALLEST_RATIO and not self._told_unmeasured:
                self._told_unmeasured = True
                _check.warn(UNMEASURED)
        else:
            engine.ratio.copy_(relative.usable(new.to(engine.device), engine.ratio))

    @property
    def is_relative(self) -> bool:
        """Whether its steps are parts of the weights' length; see `mlrsnet._engine.relative`."""
        return self.schedule.card.gamma.policy == "relative"

    def _schedule_number(self) -> int:
        """The schedule's fingerprint as a number, since a state holds numbers and tensors only."""
        return int(self.schedule.fingerprint()[:15], 16)

    def _rule_numbers(self) -> dict[str, float]:
        """The arguments that decide LRs beside the schedule; 0 for no `num_classes`, infinity for no `max_lr`."""
        rule = self._engine.rule
        return {name: getattr(rule, name) or 0 for name in RULE_KEYS}

    def _rule(self, num_classes: int | None, scale: float, min_lr: float, max_lr: float | None) -> Rule:
        if num_classes is not None:
            num_classes = _check.whole_number("num_classes", num_classes, 2, "classes, or the size of the vocabulary")
        elif self.schedule.card.gamma.needs_classes:
            raise ValueError(
                f"num_classes must be given for the schedule {self.schedule.card.name!r}, got None: the range of its LRs depends "
                "on it; pass the number of classes, or the size of the vocabulary"
            )
        low = _check.real("min_lr", min_lr)
        high = math.inf if max_lr is None else _check.real("max_lr", max_lr)
        if not 0 <= low <= high or high == 0:
            raise ValueError(
                f"min_lr and max_lr must satisfy 0 <= min_lr <= max_lr and max_lr > 0, got {min_lr!r} and {max_lr!r}"
            )
        return Rule(self.schedule, num_classes, _check.positive("scale", scale), low, high)

    def _bind(self) -> None:
        """Read the groups: at the start, when one was added, and when the optimizer's state was loaded."""
        groups = self.optimizer.param_groups
        reference = remember_initial_lrs(self.optimizer)
        self._ratios = initial_ratios(self.optimizer, reference)
        if self.is_relative:
            relative.check(self.optimizer)
        else:
            self._engine.optimizer_scale = optimizer_scale(groups[reference])
        self._bound = list(groups)
        if isinstance(self._engine, DeviceEngine):
            self._ratios = torch.tensor(self._ratios).tolist()  # as the device holds them
            # The engine's own tensors become the groups' LRs: nothing has to be copied in a step, and groups made from
            # one default tensor no longer share it.
            self._bound = self._engine.bind([float(group["lr"]) for group in groups], self._ratios)
            for group, lr in zip(groups, self._bound, strict=True):
                group["lr"] = lr

    def _is_bound(self) -> bool:
        """Whether the groups, on a device their LR tensors, are still the ones that `_bind` saw."""
        groups = self.optimizer.param_groups
        on_device = isinstance(self._engine, DeviceEngine)
        return len(groups) == len(self._bound) and all(
            (group["lr"] if on_device else group) is bound for group, bound in zip(groups, self._bound, strict=True)
        )

    def _step_on_host(self, engine: HostEngine, loss: float) -> None:
        if self.on_nonfinite == "raise" and not math.isfinite(loss):
            self._raise_nonfinite(loss)
        if engine.step(loss):
            for group, ratio in zip(self.optimizer.param_groups, self._ratios, strict=True):
                set_lr(group, engine.lr * ratio)
        if any(getattr(engine, kind) > told for kind, told in self._told.items()):
            self._warn(engine.report())

    def _step_on_device(self, engine: DeviceEngine, loss: float | Tensor) -> None:
        if not isinstance(loss, Tensor):
            loss = torch.full((), loss if abs(loss) <= FLOAT32_MAX else loss * math.inf, device=engine.device)
        if self.on_nonfinite == "raise":
            if _is_captured(loss):
                raise RuntimeError(
                    'on_nonfinite="raise" must read the loss and cannot be captured in a graph: use on_nonfinite="hold"'
                )
            if not math.isfinite(float(loss)):
                self._raise_nonfinite(float(loss))
        engine.step(loss.to(engine.device, non_blocking=engine.device.type == "cuda"))

    def _raise_nonfinite(self, loss: float) -> None:
        raise FloatingPointError(
            f"loss must be finite with on_nonfinite='raise', got {loss}: lower scale= or max_lr=, or pass "
            "on_nonfinite='hold' to skip such steps"
        )

    def _no_range(self, losses: int) -> str:
        return (
            f"the range of the LR could not be computed from any of the {losses} losses so far, and the optimizer's own LR was "
            "kept: pass initial_loss= the loss of an untrained network, about log(num_classes)"
        )

    def _warn(self, counts: Mapping[str, Any]) -> None:
        """Say once what losses did; on a device, whenever the host next reads the counts."""
        low, high = self.schedule.card.loss_range or (0.0, 0.0)
        messages = {
            "unusable": self._no_range(counts["unusable"]) if not counts["step"] else "",
            "nonfinite": "a loss was not finite; LR and state were kept (check() counts such steps)",
            "outside": f"a loss, as the network sees it, was far outside [{low:.3g}, {high:.3g}], where the schedule "
            f"{self.schedule.card.name!r} was learned; its LRs may not fit",
        }
        for kind, message in messages.items():
            if message and counts[kind] > self._told.get(kind, math.inf):
                del self._told[kind]
                _check.warn(message)

    def _listen(self) -> None:
        """Count the optimizer's steps; with tensor LRs, take over again what its `load_state_dict` brought, between replays too."""
        self._optimizer_steps.watch(self.optimizer)
        if isinstance(self._engine, DeviceEngine):
            own = weakref.ref(self)

            def take_over(optimizer: Optimizer) -> None:
                scheduler = own()
                if scheduler is not None:
                    scheduler._bind()

            self.optimizer.register_load_state_dict_post_hook(take_over)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A pickle gives every tensor a storage of its own: take over the groups' LRs again."""
        self.__dict__.update(state)
        self._bind()
        self._listen()


def _as_scalar(loss: float | Tensor) -> float | Tensor:
    if isinstance(loss, Tensor):
        if loss.numel() != 1:
            raise ValueError(f"loss must be a scalar, got shape {tuple(loss.shape)}: pass loss.mean()")
        return loss.detach().reshape(())
    try:
        if not isinstance(loss, str):
            return float(loss)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"loss must be a number or a scalar tensor, got {type(loss).__name__}: pass loss or loss.item()")


def _wide(loss: Tensor) -> Tensor:
    """A copy wide enough to add up many of them."""
    return loss.to(torch.float32 if loss.device.type == "mps" else torch.float64, copy=True)


def _is_captured(loss: Tensor) -> bool:
    return loss.is_cuda and torch.cuda.is_current_stream_capturing()


def _mean(losses: list[float | Tensor]) -> float | Tensor:
    total: float | Tensor = 0.0
    for loss in losses:
        total = total + (_wide(loss) if isinstance(loss, Tensor) else loss)
    return total / len(losses)
