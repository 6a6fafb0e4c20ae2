"""`LearnedLR`: a torch LRScheduler that reads the current loss (the paper's meta-test, Algorithm 2).

loss -> schedule network -> factor x gamma -> `param_groups[i]["lr"]`, before the user's own `optimizer.step()`.
"""

import os
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from mlrsnet import _check, _plotting
from mlrsnet._engine import state
from mlrsnet._engine.contract import Status, check_keeps_range, knows_progress, make_rule
from mlrsnet._engine.device import MOST_STEPS
from mlrsnet._engine.engine import OPEN_STEPS, Engine
from mlrsnet._engine.groups import owner
from mlrsnet._engine.losses import is_captured
from mlrsnet._engine.problems import no_range
from mlrsnet._engine.ranks import Group
from mlrsnet._engine.replay import replay
from mlrsnet._features import phase_borders, phase_index
from mlrsnet.schedule import DEFAULT, Schedule


class LearnedLR(LRScheduler):
    """Sets the LR of every step from that step's loss, with a learned schedule.

    The LR that the optimizer was made with is ignored: only the ratios between its parameter groups count. If LRs are
    tensors, they are replaced by tensors that the scheduler owns.

    Call `step(loss)` between `loss.backward()` and `optimizer.step()`. With float LRs the work is done on the host. With
    tensor LRs it is done on their device and nothing is read back, so a whole training step fits into a CUDA graph.

    `anneal(steps)` ends the training earlier or later than planned, at a small LR. `validate(loss)` shortens the steps of a
    network that over-fits.

    Args:
        optimizer: any optimizer that leaves its LR to others, or a wrapper that shares its groups. A measured range, such as
            the default's, takes it as it is. An absolute range is carried over from SGD to momentum and Adam by
            `mlrsnet.gamma.optimizer_scale`. A relative range needs torch's SGD, Adam or AdamW.
        schedule: a name, the path of a `.safetensors` file, `hf://owner/name`, or a `Schedule`.
        total_steps: optimizer steps of the whole training. None if you do not know: the schedule warms up and goes on at about
            half its height until `anneal(steps)` ends it. Only for schedules with one phase that know the progress.
        num_classes: classes, or size of the vocabulary. Only some schedules need it, and they say so.
        initial_loss: f_0, the loss of the untrained network. The first finite loss if None.
        scale: multiplies every LR.
        min_lr, max_lr: limits for the LR of the `main_group`. The others keep their ratio to it.
        on_nonfinite: `hold` keeps the last LR and counts the step, with one warning. `raise` raises, and reads the loss
            on the host.
        on_stuck: `warn` or `raise` if the training will come to nothing: the loss does not fall, grows far above its first
            level, or is not finite many times in a row. With tensor LRs, `report_problems` looks.
        process_group: ranks whose losses are averaged: the default group if None, another one, or False for none.

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

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: str | os.PathLike[str] | Schedule = DEFAULT,
        *,
        total_steps: int | None,
        num_classes: int | None = None,
        initial_loss: float | None = None,
        scale: float = 1.0,
        min_lr: float = 0.0,
        max_lr: float | None = None,
        on_nonfinite: Literal["hold", "raise"] = "hold",
        on_stuck: Literal["warn", "raise"] = "warn",
        process_group: Group = None,
    ) -> None:
        # Like ReduceLROnPlateau, without the base class's __init__: it would wrap optimizer.step to check an order
        # (scheduler after optimizer) that is the other way round here.
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}: pass the optimizer of the training"
            )
        self.optimizer = owner(optimizer)
        self.schedule = schedule if isinstance(schedule, Schedule) else Schedule.load(schedule)
        if initial_loss is not None:
            initial_loss = _check.real("initial_loss", initial_loss, "the loss of the untrained network")
        self.engine = Engine(  # for this package and its integrations; not part of the stable API
            self.optimizer,
            make_rule(self.schedule, num_classes, scale, min_lr, max_lr),
            _horizon(total_steps, self.schedule),
            initial_loss=initial_loss,
            on_nonfinite=_check.one_of("on_nonfinite", on_nonfinite, ("hold", "raise")),
            on_stuck=_check.one_of("on_stuck", on_stuck, ("warn", "raise")),
            process_group=process_group,
        )
        self.base_lrs = [group["initial_lr"] for group in self.optimizer.param_groups]

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole training: as planned, until the end that `anneal` set, or planned for so far if it has
        no end.
        """
        return self.engine.total_steps

    @property
    def has_end(self) -> bool:
        """False from `total_steps=None` until `anneal` or `extend`."""
        return not self.engine.is_open

    @property
    def is_annealing(self) -> bool:
        """Whether `anneal` has set the end of the training."""
        return self.engine.is_annealing

    @property
    def last_epoch(self) -> int:  # type: ignore[override]
        """Calls of `step` with a loss, as the host has seen them; torch's name. `status()["step"]` counts the steps taken."""
        return self.engine.steps

    @last_epoch.setter
    def last_epoch(self, value: int) -> None:
        raise TypeError(
            "last_epoch must not be set: it counts losses, which an outer scheduler such as SequentialLR does not bring; use "
            "LearnedLR on its own"
        )

    @property
    def _step_count(self) -> int:  # type: ignore[override]
        return self.engine.steps  # torch's name; some frameworks read it

    @property
    def is_relative(self) -> bool:
        """Whether each of its steps is a fraction of the weights' length, by its own direction."""
        return self.engine.is_relative

    @property
    def is_measured(self) -> bool:
        """Whether its steps are fractions of the weights' length on average, by the steps that the optimizer took."""
        return self.engine.is_measured

    @property
    def main_group(self) -> int:
        """The place of the parameter group whose LR is the schedule's own: the one that most weights use.

        The groups' order does not matter. Groups with the same LR count together, weights that are not trained do not count,
        and groups added later change nothing.
        """
        return self.engine.main

    @property
    def group_ratios(self) -> list[float]:
        """What the schedule's LR is multiplied by in each parameter group: its first LR divided by that of the main group."""
        self.engine.follow_groups()
        return list(self.engine.ratios)

    @property
    def on_nonfinite(self) -> str:
        """`hold` or `raise`."""
        return self.engine.on_nonfinite

    @property
    def on_stuck(self) -> str:
        """`warn` or `raise`."""
        return self.engine.on_stuck

    @property
    def process_group(self) -> Group:
        """Ranks whose losses are averaged."""
        return self.engine.losses.process_group

    def step(self, loss: float | Tensor | None = None) -> None:  # type: ignore[override]
        """Set the LR for the optimizer step that follows, from this batch's loss averaged with any observed losses.

        With no loss and nothing observed, nothing changes, so frameworks may call `step()` as often as they like. Warns once
        if no loss ever arrives.
        """
        loss = self.engine.losses.collect(loss)
        if loss is None:
            self._check_idle()
            return
        self._check_order(loss)
        self.engine.check_untouched()
        self.engine.advance(loss)
        self.engine.check_end(self.last_epoch)

    def observe(self, loss: float | Tensor) -> None:
        """Add the loss of a micro-batch, undivided and without the AMP scale. The next `step` uses the mean."""
        self.engine.losses.observe(loss)

    def discard(self) -> None:
        """Drop what was observed since the last `step`, for a batch whose gradients are thrown away."""
        self.engine.losses.discard()

    def trust_order(self) -> None:
        """Never warn about optimizer steps without a loss: for frameworks that also step where a batch was left out."""
        self.engine.optimizer_steps.trust()

    def extend(self, total_steps: int) -> None:
        """Extend the training to `total_steps` in all. Progress and phases follow from the next step on.

        A training that had no end gets one.

        Raises:
            RuntimeError: `anneal` has set another end.
        """
        if self.is_annealing:
            raise RuntimeError(
                f"extend(total_steps) must come before anneal(steps), which has set the end at step {self.total_steps}: call "
                "anneal(steps) again to end later"
            )
        least = self.total_steps if self.has_end else max(1, self.last_epoch)
        total_steps = _check.number_of_steps("total_steps", total_steps, least, "a horizon can only grow")
        self.engine.is_open = False
        self.engine.extend(total_steps)

    def anneal(self, steps: int) -> None:
        """End the training in `steps` more steps, from where it is: to stop early, or where the end was not known.

        Progress goes on from its value now, in a straight line to 1. So a schedule that anneals to 0 does so in these steps,
        from its LR now. A second call counts from where it is then. With tensor LRs it waits for the device; a CUDA graph that
        was captured before follows.

        Args:
            steps: optimizer steps from now on.

        Raises:
            ValueError: the schedule has one phase and does not know the progress, so its LRs would not change.
        """
        steps = _check.number_of_steps("steps", steps, hint="optimizer steps from now until the end of the training")
        if not (self.schedule.num_phases > 1 or knows_progress(self.schedule)):
            raise ValueError(
                f"anneal(steps) needs a schedule that knows the progress, and {self.schedule.card.name!r} reads only the loss, so "
                "its LRs would not fall: stop the training, or use another schedule, such as 'universal'"
            )
        self.engine.anneal(steps)

    def validate(self, loss: float | Tensor) -> float:
        """Read a loss on validation data, whenever you evaluate. Where these losses stop falling, steps get shorter.

        A training loss does not reveal over-fitting: it goes on falling. After three validation losses in a row that are not below
        the lowest so far, every LR is a tenth of what it would be, after three more a hundredth, never less than a thousandth. A
        new lowest loss undoes the last cut. `min_lr` and `max_lr` apply afterwards.

        Call it about once an epoch, and on every rank: they use the mean. What it has seen is part of the state. With tensor LRs
        it waits for the device; a CUDA graph that was captured before follows.

        Args:
            loss: lower must be better. The number that you would choose a checkpoint by: a loss, or 1 - accuracy. One before the
                training tells a fine-tuning what it has to keep.

        Returns:
            What every LR is multiplied by now: 1, 0.1, 0.01 or 0.001.

        Raises:
            ValueError: the schedule computes its range anew in every phase.

        >>> import torch, mlrsnet
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2, 2))], lr=0.1)
        >>> lr = mlrsnet.LearnedLR(optimizer, "universal", total_steps=10)
        >>> lr.step(2.3)
        >>> [lr.validate(loss) for loss in (2.1, 1.5, 1.6, 1.5, 1.7, 1.4)]
        [1.0, 1.0, 1.0, 1.0, 0.1, 1.0]
        """
        check_keeps_range(self.schedule)
        return self.engine.validate(loss)

    @property
    def begins_phase(self) -> bool:
        """Whether the next step begins a phase; the first step does. With tensor LRs it waits for the device."""
        status = self.status()
        return self._phase_of(status["step"]) != status["phase"]

    def renew_gamma(self, loss: float | Tensor) -> None:
        """Compute the range again, from this loss, for the steps from the next one on: its size |gamma|.

        The authors' program does so where a phase begins, the first one included, with the mean loss of the whole training set
        in evaluation mode:

            if lr.begins_phase:
                lr.renew_gamma(mean_loss())

        The step that follows does not renew it by itself. It is part of the state, and a CUDA graph that was captured before
        follows. Ranks do not average this loss: give all of them the same one.

        Args:
            loss: a finite number > 0, other than 1 / num_classes.

        Raises:
            ValueError: the schedule's range does not come from a loss, or this loss gives none.
        """
        gamma = self.schedule.card.gamma.size(float(loss), self.engine.rule.num_classes)
        self.engine.set_gamma(gamma, self._phase_of(self.status()["step"]))

    def get_last_lr(self) -> list[Any]:
        """The LR of each group now, as copies; tensors stay on their device."""
        lrs = (group["lr"] for group in self.optimizer.param_groups)
        return [lr.clone() if isinstance(lr, Tensor) else lr for lr in lrs]

    def get_lr(self) -> list[Any]:
        """The same as `get_last_lr`: the next LR is not known before its loss."""
        return self.get_last_lr()

    @property
    def history(self) -> np.ndarray:
        """The LR of every step so far, of the `main_group`: a copy, which cannot be written to.

        One number for each `step(loss)`, also where the loss was skipped and the LR stayed. It is part of the state, so a resumed
        run has all of it. With tensor LRs it waits for the device. To log an LR in every step, use `get_last_lr`.

        >>> import torch, mlrsnet
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2, 2))], lr=0.1)
        >>> lr = mlrsnet.LearnedLR(optimizer, "universal", total_steps=10)
        >>> for loss in (2.3, 1.9, 1.7):
        ...     lr.step(loss)
        >>> lr.history.shape, float(lr.history[-1]) == lr.get_last_lr()[0]
        ((3,), True)
        """
        lrs: np.ndarray = self.engine.backend.snapshot()["history"].numpy()
        lrs.setflags(write=False)
        return lrs

    def plot(self, path: str | os.PathLike[str] | None = None, *, ax: Any = None) -> Any:
        """Draw the LRs of the run so far, its end, its phases, and where `anneal` began. Needs matplotlib (`mlrsnet[lab]`).

        With tensor LRs it waits for the device.

        Args:
            path: where to write the picture; not written if None.
            ax: matplotlib axes to draw into.

        Returns:
            The matplotlib axes.
        """
        horizon, status = self.engine.horizon, self.status()
        skipped = self.engine.skipped if self.is_annealing else status["nonfinite"] + status["unusable"]
        return _plotting.plot_run(
            self.history,
            self.schedule.card.name,
            path,
            end=horizon.total_steps + skipped if self.has_end else None,
            borders=[step + skipped for step in phase_borders(horizon, self.schedule.num_phases)],
            annealed=horizon.begin + skipped if self.is_annealing else None,
            ax=ax,
        )

    def status(self) -> Status:
        """Where it stands: step, phase, gamma, initial_loss, lr, and how many losses were skipped or out of range.

        It only reads; with tensor LRs it waits for the device.
        """
        return self.engine.backend.status()

    def report_problems(self) -> None:
        """Warn once about each thing that went wrong so far. With float LRs, `step` does so by itself.

        Raises:
            ValueError: no loss so far gave a range, so there is no LR.
            RuntimeError: with `on_stuck="raise"`, the training will come to nothing.
        """
        status = self.status()
        if status["unusable"] and not status["step"]:
            raise ValueError(no_range(status["unusable"]))
        self.engine.problems.warn_counted(status, self.engine.rule)
        self.engine.check_measured(status["step"])
        self.engine.check_vital_signs()
        if not self.has_end and status["step"] >= OPEN_STEPS:
            self.engine.problems.warn_once(
                "open",
                f"the training has taken {status['step']} steps and has no end yet, so its LR does not fall: before you stop, call "
                "anneal(steps) and train for so many steps more",
            )

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and CPU tensors, which `torch.load(weights_only=True)` reads; waits for the device."""
        return state.save(self.engine)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly where the saved run stopped; before or after the optimizer's own `load_state_dict`."""
        state.load(self.engine, state_dict)

    def export_lambda(self, optimizer: Optimizer | None = None) -> LambdaLR:
        """The LRs of the run so far as a plain `LambdaLR`, for exact replay without losses or networks.

        Args:
            optimizer: a new optimizer with the same parameter groups; this schedule's own if None. It is stepped as usual
                in torch: `optimizer.step()`, then `scheduler.step()`. Past the end the last LR stays.
        """
        snapshot = self.engine.backend.snapshot()
        calls = snapshot["step"] + snapshot["nonfinite"] + snapshot["unusable"]
        known = int(torch.isfinite(snapshot["history"]).sum())
        if not calls or known < calls:
            raise RuntimeError(
                f"{known} of {calls} LRs are on record: run the schedule first; capture a CUDA graph again after extend(); "
                f"with a tensor LR, keep total_steps as long as the run and below {MOST_STEPS:,}"
            )
        return replay(optimizer or self.optimizer, snapshot["history"].tolist(), self.engine.ratios)

    def __repr__(self) -> str:
        end = f"of {self.total_steps}" if self.has_end else "of a training without an end yet"
        ratios = self.engine.ratios
        groups = (
            "" if ratios == [1.0] * len(ratios) else f", group LRs times {', '.join(f'{one:.4g}' for one in ratios)}"
        )
        return f"LearnedLR({self.schedule.card.name!r}, step {self.last_epoch} {end}{groups})"

    def check(self) -> dict[str, Any]:
        """Old name: `report_problems()`, then `status()`."""
        _check.warn(
            "LearnedLR.check() is now report_problems() and status(); it will be removed in version 0.3",
            DeprecationWarning,
        )
        self.report_problems()
        return {**self.status()}

    def forget(self) -> None:
        """Old name of `discard`."""
        _check.warn("LearnedLR.forget() is now discard(); it will be removed in version 0.3", DeprecationWarning)
        self.discard()

    def _phase_of(self, step: int) -> int:
        total_steps, begin, start = self.engine.horizon
        return int(phase_index(step, total_steps, self.schedule.num_phases, begin=begin, start=start))

    def _check_idle(self) -> None:
        """Warn once if `step()` is called and never brings a loss."""
        if not self.last_epoch:
            self.engine.problems.warn_once(
                "idle",
                "LearnedLR.step() was called without a loss before any was seen, so the LR is still the optimizer's own: call "
                "step(loss) between loss.backward() and optimizer.step(); Lightning and Transformers need the callback of "
                "mlrsnet.integrations",
            )

    def _check_order(self, loss: float | Tensor) -> None:
        """Warn once if the optimizer stepped before the first `step(loss)`, or twice after one. Graph replays are not seen."""
        counter = self.engine.optimizer_steps
        if is_captured(loss):
            counter.trust()
        steps = counter.excess(1 if self.last_epoch else 0)
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


def _horizon(total_steps: int | None, schedule: Schedule) -> int | None:
    """The argument `total_steps`, checked."""
    if total_steps is not None:
        return _check.number_of_steps("total_steps", total_steps, hint="optimizer steps of the whole training, or None")
    if schedule.num_phases > 1 or not knows_progress(schedule):
        why = f"has {schedule.num_phases} phases" if schedule.num_phases > 1 else "does not read the progress"
        raise ValueError(
            f"total_steps must be given for the schedule {schedule.card.name!r}, which {why}, got None: pass the optimizer steps "
            "of the whole training, or use a schedule with one phase that knows the progress, such as 'universal'"
        )
    return None
