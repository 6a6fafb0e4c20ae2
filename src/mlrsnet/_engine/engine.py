"""`Engine`: from a loss to the LRs of an optimizer's parameter groups. `LearnedLR` owns one, and shares it with `MetaTrainer`."""

import math
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mlrsnet import _weights
from mlrsnet._engine import counted, measured, relative, shards, suitable
from mlrsnet._engine.contract import Backend, Rule, Snapshot, Status, knows_progress
from mlrsnet._engine.device import DeviceBackend
from mlrsnet._engine.groups import device_of, main_group, ratios_to, remember_initial_lrs, set_lr
from mlrsnet._engine.host import HostBackend
from mlrsnet._engine.losses import Losses, as_scalar, is_captured
from mlrsnet._engine.meter import Meter
from mlrsnet._engine.problems import Problems
from mlrsnet._engine.ranks import Group, average_over_ranks
from mlrsnet._engine.step_count import StepCounter
from mlrsnet._engine.unfinished import Course
from mlrsnet._engine.validation import Validation
from mlrsnet._engine.vital_signs import Sign, VitalSigns
from mlrsnet._features import Horizon
from mlrsnet.gamma import is_adaptive, is_known, momentum_scale, optimizer_scale

OPEN_STEPS, OPEN_GROWTH = 1000, 16
"""A training without an end plans for so many steps first, then for a sixteenth more whenever half of them are over."""


class Engine:
    """Sets the LRs of an optimizer, one loss at a time.

    `horizon` says how progress goes to its end. `planned_steps` is T in the law of a measured range and in its window. A
    training whose end is open plans for about twice the steps so far: whenever half of them are over, the plan grows.

    The parts are public to the rest of the package: `losses` that wait for their step, `backend` with the numbers, the place
    of the `main` group and the `ratios` of all LRs to its, `optimizer_steps` taken since the last loss, `meter` of those
    steps where the range is measured, and `problems` reported so far.

    Args:
        optimizer: the one that owns the parameter groups.
        rule: what decides an LR.
        total_steps: optimizer steps of the whole training; None if nobody knows.
        initial_loss: f_0; the first finite loss if None.
        on_nonfinite: `hold` keeps the last LR, `raise` raises.
        on_stuck: `warn` or `raise` if the training will come to nothing.
        process_group: ranks whose losses are averaged.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        rule: Rule,
        total_steps: int | None,
        *,
        initial_loss: float | None = None,
        on_nonfinite: str = "hold",
        on_stuck: str = "warn",
        process_group: Group = None,
    ) -> None:
        self.optimizer, self.rule, self.is_open = optimizer, rule, total_steps is None
        total_steps = OPEN_STEPS if total_steps is None else total_steps
        self.horizon, self.planned_steps, self.is_annealing = Horizon(total_steps), total_steps, False
        self.skipped = 0  # losses that did not count before an annealing began
        self.on_nonfinite, self.on_stuck, self.steps = on_nonfinite, on_stuck, 0
        self.vital_signs, self.signs_seen = VitalSigns(total_steps), 0
        self.losses, self.problems, self.optimizer_steps = Losses(process_group), Problems(), StepCounter()
        self.validation = Validation()
        self.is_relative = rule.schedule.card.gamma.is_relative
        self.is_measured = rule.schedule.card.gamma.is_measured
        self.course = Course()
        self.ratios: list[float] = []
        self._bound: list[dict[str, Any]] = []
        self._awaits_step = False
        suitable.check(optimizer)
        remember_initial_lrs(optimizer)
        suitable.check_lrs(optimizer)
        self.main = main_group(optimizer, process_group)
        lr, device = float(optimizer.param_groups[self.main]["lr"]), device_of(optimizer.param_groups)
        self.backend: Backend = (
            HostBackend(rule, total_steps, initial_loss, lr)
            if device is None
            else DeviceBackend(rule, total_steps, initial_loss, lr, device)
        )
        self.meter = Meter(self.backend, total_steps) if self.is_measured else None
        self.depth = self.parameters = 1
        if self.is_measured:
            self._look_at_weights()
        self.bind()
        self._check_known()
        self._listen()
        self._set_course()
        self.course.watch(self)

    def advance(self, loss: float | Tensor) -> None:
        """Set the LRs for the optimizer step that follows, from its loss."""
        if self.is_open and is_captured(loss):
            raise RuntimeError(
                "total_steps=None cannot be captured in a graph, since the host moves the end as it sees steps: pass a "
                "total_steps that is long enough, and call anneal(steps) when the training should end"
            )
        self.follow_groups()
        if self.is_relative:
            self.backend.set_ratio(relative.ratio(self.optimizer, self.ratios))
        if self.meter is not None:
            self.meter.begin()
            if self.backend.on_host:
                self.check_measured(self.steps)
        if self.on_nonfinite == "raise" or self.backend.on_host:
            loss = self._read(loss)
        self.backend.step(loss)  # also writes param_groups[i]["lr"]
        self._awaits_step = True
        self.steps += 1
        self.course.steps = self.steps
        if self.is_open and 2 * self.steps >= self.planned_steps:
            self.extend(self.planned_steps + self.planned_steps // OPEN_GROWTH)
        if self.backend.on_host:
            if self.problems.are_new(self.backend.carry.counters):
                self.problems.warn_counted(self.backend.status(), self.rule)
            self._tell(self.vital_signs.see(float(loss), self.planned_steps))

    @property
    def total_steps(self) -> int:
        """The step at which the training ends."""
        return int(self.horizon.total_steps)

    def extend(self, total_steps: int) -> None:
        """Set the number of steps of the whole training."""
        self._follow(Horizon(total_steps), total_steps)

    def anneal(self, steps: int) -> None:
        """End the training in `steps` more steps; waits for the device."""
        status = self.backend.status()
        self.is_annealing, self.is_open, self.skipped = True, False, _skipped(status)
        self._follow(self.horizon.annealed(status["step"], steps), self.planned_steps)

    def validate(self, loss: float | Tensor) -> float:
        """Read a validation loss; what every LR is multiplied by from now on. Waits for the device.

        The share is part of gamma, which a captured step reads. A step whose LR is already set keeps it.
        """
        loss = float(average_over_ranks(as_scalar(loss, allow_whole=True), self.losses.process_group))
        if not math.isfinite(loss):
            self.problems.warn_once("validation", f"a validation loss was not finite ({loss}), and was not read")
            return self.validation.share
        status, before = self.backend.status(), self.validation.share
        self.validation.see(loss, is_training=status["step"] > 0)
        if self.validation.share != before:
            self._awaits_step = False
            self.backend.set_gamma(status["gamma"] * self.validation.share / before, status["phase"])
            self._set_course()
            self._check_falls()
        return self.validation.share

    def set_gamma(self, gamma: float, phase: int) -> None:
        """Continue with another range, as if it came from this phase. Steps that were shortened stay so."""
        self.backend.set_gamma(gamma * self.validation.share, phase)

    def check_measured(self, steps: int) -> None:
        """Warn once if the range could not be measured in this many steps; waits for the device."""
        if self.is_relative and steps and float(self.backend.ratio) <= relative.SMALLEST_RATIO:
            self.problems.warn_once("unmeasured", relative.UNMEASURED)
        if self.meter is not None and steps >= measured.PATIENCE and not self.meter.numbers()[1]:
            self.problems.warn_once("unmeasured", measured.UNMEASURED)

    def measure_again(self) -> None:
        """The optimizer is about to step: its gradients are those that it will use. For relative and measured ranges."""
        if not self._awaits_step:
            return
        self._awaits_step = False
        if self.meter is not None:
            self.meter.limit(self.optimizer)
            return
        self.backend.redo(relative.ratio(self.optimizer, self.ratios))
        if self.backend.on_host:
            self.check_measured(self.steps)

    def check_vital_signs(self) -> None:
        """Look at the losses that came since the last call, on a device; waits for it. On the host, every step does so."""
        if isinstance(self.backend, DeviceBackend):
            for loss in self.backend.losses_since(self.signs_seen):
                self.signs_seen += 1
                self._tell(self.vital_signs.see(loss, self.planned_steps))

    def check_end(self, steps: int) -> None:
        """Warn once if the training goes on after its end."""
        if not self.is_open and steps - self.skipped > self.total_steps:
            self.problems.warn_once(
                "end",
                f"step {steps} is past the end that LearnedLR.anneal(steps) set, step {self.total_steps}; the LR stays where it "
                "ended: stop the training there, or call anneal(steps) again before it"
                if self.is_annealing
                else f"step {steps} is past total_steps={self.total_steps}, which counts optimizer steps, not epochs; the schedule "
                "stays where it ends: pass the steps of the whole training, or call LearnedLR.extend(total_steps)",
            )

    def check_untouched(self) -> None:
        """Warn once if someone else has changed an LR since the last step; not on a device, which would have to be asked."""
        for place, (group, given) in enumerate(zip(self._bound, self.backend.given, strict=False)):
            if group["lr"] != given:
                self.problems.warn_once(
                    "touched",
                    f"the LR of parameter group {place} was changed from {given:.4g} to {float(group['lr']):.4g} since the last "
                    "LearnedLR.step(loss), which sets it again: use no other scheduler beside it, nor an optimizer that sets its "
                    "own LR; scale=, min_lr= and max_lr= change what LearnedLR sets",
                )

    def follow_groups(self) -> None:
        """Bind again where a group was added, or the optimizer's state was loaded."""
        if not self.backend.is_bound(self.optimizer.param_groups):
            self.bind()

    def bind(self) -> None:
        """Read the groups, and take over their LRs."""
        remember_initial_lrs(self.optimizer)
        groups = self.optimizer.param_groups
        if self.is_relative:
            relative.check(self.optimizer)
        elif self.is_measured:
            counted.check(self.optimizer)
        self.main = self._find_main()
        self._bound = list(groups)
        self._set_scale()
        self.ratios = self.backend.bind(groups, ratios_to(self.optimizer, self.main))
        if self.meter is not None:
            self.meter.bind(groups, self.ratios, self.main)

    def restore(
        self,
        saved: Snapshot,
        steps: int,
        horizon: Horizon,
        planned_steps: int,
        main: int,
        mean: tuple[float, float] = (0.0, 0.0),
        known: tuple[int, int] = (1, 1),
        measured_steps: int = 0,
        shrink: Tensor | None = None,
        validation: Validation | None = None,
    ) -> None:
        """Continue from a snapshot, without repeating its warnings. `planned_steps`: for which the range and the windows are.
        `main`: the place of the group whose LR is alpha.

        For a measured range, `mean`: of `Meter.numbers`; `known`: depth and parameters as they were before the first step;
        `measured_steps`: those of the meter; `shrink`: of `Meter.counted`. `validation`: the losses that `validate` has read.
        """
        self.steps, (self.depth, self.parameters) = steps, known
        if main != self.main:
            self.main, self._bound = main, []
        self.bind()  # before anything is restored: it converts what was measured so far
        self._follow(horizon, planned_steps)
        self.backend.restore(saved)
        self.skipped = _skipped(saved) if self.is_annealing else 0
        self.signs_seen = saved["step"] + _skipped(saved)
        self.vital_signs = VitalSigns(planned_steps, knows_begin=not self.signs_seen)
        self.problems.mark_known(saved)
        self.optimizer_steps.take()
        self._awaits_step, self.validation = False, validation or Validation()
        self._set_course()
        if self.validation.cuts:
            self.problems.warned.add("no_falls")
        for group, ratio in zip(self.optimizer.param_groups, self.ratios, strict=True):
            set_lr(group, saved["lr"] * ratio)
        if self.meter is not None:
            self.meter.restore(mean, measured_steps, torch.ones(0) if shrink is None else shrink)

    def _follow(self, horizon: Horizon, planned_steps: int) -> None:
        """Set where progress goes, and for how many steps the range and the windows are."""
        self.horizon, self.planned_steps = horizon, planned_steps
        self.backend.set_horizon(horizon)
        if self.meter is not None:
            self.meter.extend(planned_steps)
        self._set_scale()
        self._set_course()

    def _set_course(self) -> None:
        """Say where the LR ends, if someone planned it and it falls there."""
        has_other_end = self.is_open or self.is_annealing or self.validation.cuts
        is_planned = knows_progress(self.rule.schedule) and not has_other_end
        self.course.steps, self.course.total_steps = self.steps, self.total_steps if is_planned else 0

    def _find_main(self) -> int:
        """Where the main group is now. Groups may be added or removed, and `Optimizer.load_state_dict` makes all of them new."""
        groups = self.optimizer.param_groups
        known = self._bound[self.main] if self.main < len(self._bound) else None
        place = next((place for place, group in enumerate(groups) if group is known), self.main)
        was_removed = len(groups) < len(self._bound) and groups[min(place, len(groups) - 1)] is not known
        if was_removed or not groups[place]["initial_lr"]:
            return main_group(self.optimizer, self.losses.process_group)
        return place

    def _tell(self, sign: Sign | None) -> None:
        """Warn about a sign, or raise."""
        if sign is None:
            return
        if self.on_stuck == "raise":
            raise RuntimeError(f"{sign.message}; on_stuck='warn' goes on")
        self.problems.warn_once(sign.kind, f"{sign.message}; on_stuck='raise' would stop here")

    def _check_falls(self) -> None:
        """Warn once if validation losses only rose."""
        if not self.validation.has_fallen:
            self.problems.warn_once(
                "no_falls",
                f"validate(loss) got nothing below its first loss, {self.validation.lowest:.4g}, so every LR is now "
                f"{self.validation.share:g} times what it would be: if higher is better, pass 1 - accuracy or the like; else the "
                "network was best when it was first validated",
            )

    def _look_at_weights(self) -> None:
        """Read what the weights tell before the first step. A resumed run has it in its state: its weights have moved."""
        weights = (weight for group in self.optimizer.param_groups for weight in group["params"])
        facts = _weights.read(shards.whole_vector(weight) for weight in weights if weight.requires_grad)
        caution = self.rule.schedule.card.gamma.caution
        self.depth, self.parameters = facts.depth, max(1, facts.parameters)
        if facts.is_trained and caution < 1:
            self.backend.set_memory(self.rule.schedule.net.careful(self.backend.copy_memory(), caution))

    def _set_scale(self) -> None:
        """Carry the range over to the optimizer."""
        group = suitable.as_torch(self.optimizer, self.optimizer.param_groups[self.main])
        gamma = self.rule.schedule.card.gamma
        if self.is_measured:
            law = gamma.law(self.planned_steps, self.parameters, self.depth)
            self.backend.optimizer_scale = law * momentum_scale(group)
        elif not self.is_relative:
            share = gamma.adaptive_share(self.rule.num_classes) if is_adaptive(group) else 1.0
            self.backend.optimizer_scale = share * optimizer_scale(group)

    def _check_known(self) -> None:
        """Warn if the optimizer is unknown and its range is not measured."""
        group = suitable.as_torch(self.optimizer, self.optimizer.param_groups[self.main])
        if not (self.is_measured or self.is_relative or is_known(group)):
            self.problems.warn_once(
                "assumed",
                f"{type(self.optimizer).__name__} is an optimizer that the range of the schedule {self.rule.schedule.card.name!r} "
                f"was not made for, and it gets that of SGD times {self.backend.optimizer_scale:.3g}: compare "
                "LearnedLR.get_last_lr() with an LR that you trust, and correct it with scale=, or use 'universal-2', which "
                "measures the optimizer's steps",
            )

    def _read(self, loss: float | Tensor) -> float:
        """The loss as a number, finite where it has to be."""
        if is_captured(loss):
            rule = "a float LR" if self.backend.on_host else 'on_nonfinite="raise"'
            then = "give the optimizer a tensor LR" if self.backend.on_host else 'use on_nonfinite="hold"'
            raise RuntimeError(f"{rule} must read the loss and cannot be captured in a graph: {then}")
        value = float(loss)
        if self.on_nonfinite == "raise" and not math.isfinite(value):
            raise FloatingPointError(
                f"loss must be finite with on_nonfinite='raise', got {value}: lower scale= or max_lr=, or pass "
                "on_nonfinite='hold' to skip such steps"
            )
        return value

    def _listen(self) -> None:
        """Count the optimizer's steps. On a device, take over LRs that its `load_state_dict` brings, even between replays."""
        self.optimizer_steps.watch(self.optimizer)
        if self.meter is not None:
            self.meter.watch(self.optimizer)
        if self.is_relative or self.is_measured:
            self.optimizer.register_step_pre_hook(relative.Hook(self))
        if not self.backend.on_host:
            own = weakref.ref(self)

            def take_over(optimizer: Optimizer) -> None:
                engine = own()
                if engine is not None:
                    engine.bind()

            self.optimizer.register_load_state_dict_post_hook(take_over)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A pickle gives every tensor its own storage: take over the groups' LRs again."""
        self.__dict__.update(state)
        self.bind()
        self._listen()


def _skipped(status: Status) -> int:
    """Losses that did not count."""
    return status["nonfinite"] + status["unusable"]
