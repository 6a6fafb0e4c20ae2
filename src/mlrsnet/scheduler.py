"""`LearnedLR`: one line that sets the LR of every optimizer step.

The optimizer's own hooks do the work (see `_driver`), so no loop has to call anything. A loss is something that it may be told.
"""

import os
from collections.abc import Sized
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from mlrsnet import _check, _optimizers, _state, plots
from mlrsnet._driver import Driver, driver_of, uncompiled
from mlrsnet._groups import replay
from mlrsnet._losses import as_scalar, wide
from mlrsnet._numbers import make_limits
from mlrsnet.default import NAME
from mlrsnet.facts import told
from mlrsnet.law import Law
from mlrsnet.plan import Plan
from mlrsnet.ranks import Group, num_ranks
from mlrsnet.schedule import Schedule


class LearnedLR(LRScheduler):
    """Sets the LR of every step of an optimizer, from its first step to its last.

    Nothing has to be called: an optimizer that was given to it sets its LRs by itself, in any loop and any framework. The LR
    that the optimizer was made with is ignored; only the ratios between its parameter groups count. It counts the optimizer's
    own steps, so accumulation, skipped steps and calls of `step` without a loss change nothing.

    `step(loss)` tells it the loss of the next optimizer step. The default then shortens steps where the loss rises. The paper's
    networks compute the LR from the loss, and need it before every optimizer step.

    Args:
        optimizer: any optimizer that leaves its LR to others, or a wrapper that shares its groups.
        schedule: a name, the path of a `.safetensors` file, `hf://owner/name`, or a `Law` such as a `Schedule`.
        total_steps: optimizer steps of the whole training. None if you do not know: the schedule warms up and goes on at about
            half its height until `anneal(steps)` ends it. Only for schedules with one phase that know the progress.
        num_classes: classes, or size of the vocabulary. Only some schedules need it, and they say so.
        initial_loss: f_0, the loss of the untrained network. The first finite loss if None.
        trained: whether the weights come from another training and should stay near where they are, as in fine-tuning. None looks
            at them before the first step. False for a pre-training that goes on. Only the default asks, as for the next two.
        batch_size: examples in an optimizer step: of all micro-batches and all processes; sequences for text. The default takes
            longer steps with large batches, and assumes 32.
        model: the network whose weights are trained, for what they do not tell: norms that are frozen or have no gains, and
            adapters that were trained before. It is only looked at.
        scale: multiplies every LR.
        min_lr, max_lr: limits for the LR of the `main_group`. The others keep their ratio to it.
        on_nonfinite: `hold` does not read a loss that is not finite and counts it, with one warning. `raise` raises.
        on_stuck: `warn` or `raise` if the losses say that the training will come to nothing.
        process_group: ranks whose losses are averaged: the default group if None, another one, or False for none.

    >>> import torch, mlrsnet
    >>> model = torch.nn.Linear(4, 3)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> lr = mlrsnet.LearnedLR(optimizer, total_steps=10)
    >>> for _ in range(10):
    ...     loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(3, (8,)))
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    >>> lr.status()["step"], 0 < lr.get_last_lr()[0] < 1
    (10, True)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: str | os.PathLike[str] | Law = NAME,
        *,
        total_steps: int | None,
        num_classes: int | None = None,
        initial_loss: float | None = None,
        trained: bool | None = None,
        batch_size: int | None = None,
        model: nn.Module | None = None,
        scale: float = 1.0,
        min_lr: float = 0.0,
        max_lr: float | None = None,
        on_nonfinite: Literal["hold", "raise"] = "hold",
        on_stuck: Literal["warn", "raise"] = "warn",
        process_group: Group = None,
    ) -> None:
        # Without the base class's __init__: it would set LRs, and wrap optimizer.step to check an order of calls.
        _optimizers.check(optimizer)
        self.optimizer = _optimizers.owner(optimizer)
        self.law: Law = schedule if hasattr(schedule, "advance") else Schedule.load(schedule)  # type: ignore[assignment, arg-type]
        self._driver = Driver(
            self.optimizer,
            self.law,
            told(trained, batch_size, model, num_classes, initial_loss),
            _total_steps(total_steps, self.law),
            make_limits(scale, min_lr, max_lr),
            raises=_check.one_of("on_nonfinite", on_nonfinite, ("hold", "raise")) == "raise",
            on_stuck=_check.one_of("on_stuck", on_stuck, ("warn", "raise")),
            process_group=process_group,
        )
        self._driver.attach(optimizer)

    @classmethod
    def for_loader(
        cls, optimizer: Optimizer, loader: Sized, epochs: int, accumulate: int = 1, schedule: Any = NAME, **options: Any
    ) -> "LearnedLR":
        """The same, with the steps counted: epochs times the batches of a `DataLoader`. The default hears of the batch, too.

        With `accumulate` batches to a step, the rest of an epoch is a step too, as in most frameworks.

        Args:
            optimizer, schedule, options: as for `LearnedLR`.
            loader: a `DataLoader` that knows its length.
            epochs: how often the training goes through it.
            accumulate: batches for each optimizer step.

        >>> import torch, mlrsnet
        >>> loader = torch.utils.data.DataLoader(torch.randn(100, 4), batch_size=8)  # 13 batches
        >>> optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2, 2))])
        >>> mlrsnet.LearnedLR.for_loader(optimizer, loader, epochs=3, accumulate=4).total_steps
        12
        """
        epochs = _check.whole_number("epochs", epochs)
        accumulate = _check.whole_number("accumulate", accumulate, hint="batches for each optimizer step")
        batches = _length(loader)
        if not batches:
            raise ValueError(
                f"loader must have batches and know how many, got {type(loader).__name__} that is empty or, as over an "
                "IterableDataset, has no length: pass total_steps= to LearnedLR instead, the optimizer steps of the whole training"
            )
        size = getattr(loader, "batch_size", None) or getattr(
            getattr(loader, "batch_sampler", None), "batch_size", None
        )
        if isinstance(size, int):
            size = min(size, _length(getattr(loader, "dataset", None)) or size)
            ranks = num_ranks(options.get("process_group"))
            options.setdefault("batch_size", size * min(accumulate, batches) * ranks)
        return cls(optimizer, schedule, total_steps=epochs * -(-batches // accumulate), **options)

    def step(self, loss: float | Tensor | None = None) -> None:  # type: ignore[override]
        """Tell the loss of the optimizer step that follows: this batch's, averaged with those that were observed.

        Call it between `loss.backward()` and `optimizer.step()`. Told afterwards, a loss counts for the next step. One that no step
        has used, as where a GradScaler skipped it, is replaced by the next. Without a loss nothing happens, so frameworks may call
        `step()` as often as they like.
        """
        if torch.compiler.is_compiling():
            uncompiled(self.step, loss)
            return
        if loss is not None or self._driver.window:
            self._following().tell(loss)

    def observe(self, loss: float | Tensor) -> None:
        """Add the loss of a micro-batch, undivided and without the AMP scale. The next optimizer step uses the mean."""
        loss = as_scalar(loss)
        self._following().window.append(wide(loss) if isinstance(loss, Tensor) else loss)

    def discard(self) -> None:
        """Drop the losses that no step has used, for a batch whose gradients are thrown away."""
        self._following().discard()

    def validate(self, loss: float | Tensor) -> float:
        """Read a loss on validation data, whenever you evaluate. Where these losses stop falling, steps get shorter.

        A training loss does not reveal over-fitting: it goes on falling. After three validation losses in a row that are not below
        the lowest so far, every LR is a tenth of what it would be, after three more a hundredth, never less than a thousandth. A
        new lowest loss undoes the last cut. `min_lr` and `max_lr` apply afterwards.

        Call it about once an epoch, and on every rank: they use the mean. What it has seen is part of the state, and a captured
        CUDA graph follows.

        Args:
            loss: lower must be better. The number that you would choose a checkpoint by: a loss, or 1 - accuracy. One before the
                training tells a fine-tuning what it has to keep.

        Returns:
            What every LR is multiplied by from the next step on: 1, 0.1, 0.01 or 0.001.

        >>> import torch, mlrsnet
        >>> weight = torch.nn.Parameter(torch.ones(2, 2))
        >>> optimizer = torch.optim.SGD([weight], lr=0.1)
        >>> lr = mlrsnet.LearnedLR(optimizer, total_steps=10)
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> [lr.validate(loss) for loss in (2.1, 1.5, 1.6, 1.5, 1.7, 1.4)]
        [1.0, 1.0, 1.0, 1.0, 0.1, 1.0]
        """
        return self._following().validate(loss)

    def extend(self, total_steps: int) -> None:
        """Extend the training to `total_steps` in all. Progress and phases follow from the next step on.

        A training that had no end gets one.

        Raises:
            RuntimeError: `anneal` has set another end.
        """
        driver = self._following()
        if driver.is_annealing:
            raise RuntimeError(
                f"extend(total_steps) must come before anneal(steps), which has set the end at step {driver.end}: call "
                "anneal(steps) again to end later"
            )
        least = self.total_steps if self.has_end else max(1, self.last_epoch)
        total = _check.number_of_steps("total_steps", total_steps, least, "a training can only get longer")
        driver.is_open_ended = False
        driver.follow(Plan.of(total), total)

    def anneal(self, steps: int) -> None:
        """End the training in `steps` more steps, from where it is: to stop early, or where the end was not known.

        Progress goes on from its value now, in a straight line to 1. So a schedule that anneals to 0 does so in these steps,
        from its LR now. A second call counts from where it is then. With LRs on a GPU it waits for the device; a CUDA graph
        that was captured before follows.

        Args:
            steps: optimizer steps from now on.

        Raises:
            ValueError: the schedule has one phase and does not know the progress, so its LRs would not change.
        """
        driver = self._following()
        steps = _check.number_of_steps("steps", steps, hint="optimizer steps from now until the end of the training")
        if self.law.num_phases == 1 and not self.law.knows_progress:
            raise ValueError(
                f"anneal(steps) needs a schedule that knows the progress, and {self.law.name!r} reads only the loss, so its "
                "LRs would not fall: stop the training, or use another schedule, such as 'universal'"
            )
        state, _, taken, _ = self._read()
        driver.is_annealing, driver.is_open_ended = True, False
        driver.follow(driver.plan.annealed(state.step, steps), taken + steps)

    def remove(self) -> None:
        """Leave the optimizer alone from now on. Its LRs stay as they are."""
        self._driver.remove()

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole training: as planned, to the end that `anneal` set, or planned for so far."""
        return self._driver.end

    @property
    def has_end(self) -> bool:
        """False from `total_steps=None` until `anneal` or `extend`."""
        return not self._driver.is_open_ended

    @property
    def is_annealing(self) -> bool:
        """Whether `anneal` has set the end of the training."""
        return self._driver.is_annealing

    @property
    def last_epoch(self) -> int:  # type: ignore[override]
        """Optimizer steps that were taken, as the host has seen them; torch's name. `status()["step"]` asks the device."""
        self._driver.settle()
        return self._driver.steps

    @last_epoch.setter
    def last_epoch(self, value: int) -> None:
        raise TypeError(
            "last_epoch must not be set: it counts optimizer steps, so an outer scheduler such as SequentialLR cannot move it; use "
            "LearnedLR on its own"
        )

    @property
    def _step_count(self) -> int:  # type: ignore[override]
        return self.last_epoch

    @_step_count.setter
    def _step_count(self, value: int) -> None:
        """Some frameworks count here, such as Accelerate. It is not used."""

    @property
    def _last_lr(self) -> list[Any]:  # type: ignore[override]
        return self.get_last_lr()

    @property
    def base_lrs(self) -> list[float]:  # type: ignore[override]
        """The LRs that the groups began with: only their ratios count."""
        return [group["initial_lr"] for group in self.optimizer.param_groups]

    @property
    def main_group(self) -> int:
        """The place of the parameter group whose LR is the schedule's own: the one that most weights use.

        The groups' order does not matter. Groups with the same LR count together, weights that are not trained do not count,
        and groups added later change nothing.
        """
        return self._driver.main

    @property
    def group_ratios(self) -> list[float]:
        """What the schedule's LR is multiplied by in each parameter group: its first LR divided by that of the main group."""
        self._driver.bind(self.optimizer)
        return list(self._driver.ratios)

    def get_last_lr(self) -> list[Any]:
        """The LR of each group now, which is that of the last step, as copies; tensors stay on their device."""
        lrs = (group["lr"] for group in self.optimizer.param_groups)
        return [lr.clone() if isinstance(lr, Tensor) else lr for lr in lrs]

    def get_lr(self) -> list[Any]:
        """The same as `get_last_lr`: the next LR is not known before its step."""
        return self.get_last_lr()

    @property
    def history(self) -> np.ndarray:
        """The LRs so far, of the `main_group`: a copy, which cannot be written to.

        One number for each step. Of more than 10,000 steps it has every second, or every fourth, ...: LR i is that of step
        i * `history_stride`. It is part of the state. With LRs on a GPU it waits for the device. To log an LR in every step, use
        `get_last_lr`.
        """
        lrs = self._read()[3]
        lrs.setflags(write=False)
        return lrs

    @property
    def history_stride(self) -> int:
        """How many steps are between two LRs of `history`: 1, 2, 4, ..."""
        return self._driver.numbers.stride

    def plot(self, path: str | os.PathLike[str] | None = None, *, ax: Any = None) -> Any:
        """Draw the LRs of the run so far, its end, its phases, and where `anneal` began. Needs matplotlib (`mlrsnet[plots]`).

        Args:
            path: where to write the picture; not written if None.
            ax: matplotlib axes to draw into.

        Returns:
            The matplotlib axes.
        """
        plan, lag = self._driver.plan, self._driver.end - self._driver.plan.total_steps
        return plots.plot_run(
            self.history,
            self.law.name,
            path,
            stride=self.history_stride,
            end=self.total_steps if self.has_end else None,
            borders=[step + lag for step in plan.borders(self.law.num_phases)],
            annealed=plan.begin + lag if self.is_annealing else None,
            ax=ax,
        )

    def status(self) -> dict[str, Any]:
        """Where it stands and what it sees, by name: for people and for logs. With LRs on a GPU it waits for the device.

        step, total_steps, progress: how far the training is. lr: of the main group, in the last step. step_length: how far that
        step moved the matrices, as a share of their length. distance: how far they are from where they began, as a share of
        their length there. matrices, parameters, has_norms, are_adapters, is_trained, is_adaptive, batch_size: what was
        known before the first step.
        What the schedule has read of the losses follows: for the default, level: average loss / first loss, and nonfinite:
        losses that were not finite.
        """
        state, lr, steps, _ = self._read()
        self._driver.look(state, steps)
        return {
            "schedule": self.law.name,
            "step": steps,
            "total_steps": self.total_steps if self.has_end else None,
            "progress": float(self._driver.plan.progress(state.step)),
            "lr": lr,
            "step_length": float(self._driver.sensor.x) ** 0.5 * lr,
            "distance": self._driver.distance.value(),
            "share": self._driver.validation.share,
            **{name: value for name, value in self._driver.facts._asdict().items() if value is not None},
            **self.law.status(state),
        }

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and CPU tensors, which `torch.load(weights_only=True)` reads; waits for the device."""
        state, lr, steps, lrs = self._read()
        if self._driver.watch.on_stuck == "warn":  # whatever happens, a state can be saved
            self._driver.look(state, steps)
        self._driver.bind(self.optimizer)
        return _state.save(self._driver, state, lr, steps, lrs)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly where the saved run stopped; before or after the optimizer's own `load_state_dict`."""
        _state.load(self._following(), state_dict)

    def export_lambda(self, optimizer: Optimizer | None = None) -> LambdaLR:
        """The LRs of the run so far as a plain `LambdaLR`, for exact replay. Of at most 10,000 steps.

        Args:
            optimizer: a new optimizer with the same parameter groups; this one's own if None, which `LearnedLR` then leaves
                alone.

        Returns:
            A scheduler that is stepped as usual in torch: `optimizer.step()`, then `scheduler.step()`. Past the end the last LR
            stays.
        """
        lrs = self.history
        if not len(lrs) or self.history_stride > 1:
            raise RuntimeError(
                f"the LR of every step must be on record, got {len(lrs)} LRs of {self.last_epoch} steps: take a step first; of "
                "a training of more than 10,000 steps not every LR is kept, so log get_last_lr() instead"
            )
        ratios = self.group_ratios
        if optimizer is None:
            self.remove()
        return replay(optimizer or self.optimizer, lrs.tolist(), ratios)

    def __repr__(self) -> str:
        end = f"of {self.total_steps}" if self.has_end else "of a training without an end yet"
        ratios = self._driver.ratios
        groups = (
            "" if ratios == [1.0] * len(ratios) else f", group LRs times {', '.join(f'{one:.4g}' for one in ratios)}"
        )
        return f"LearnedLR({self.law.name!r}, step {self.last_epoch} {end}{groups})"

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy of an optimizer has no hooks: follow it again. One of this handle alone has the same optimizer and driver."""
        self.__dict__.update(state)
        if not self._driver.is_removed and driver_of(self.optimizer) is not self._driver:
            self._driver.attach(self.optimizer)

    def _read(self) -> tuple[Any, float, int, np.ndarray]:
        """The law's state, alpha and the steps taken as plain numbers, and the LRs on record."""
        self._driver.settle()
        state, lr, steps, lrs = self._driver.numbers.read()
        return state, lr, self._driver.steps if steps is None else steps, lrs

    def _following(self) -> Driver:
        """The driver, if it still sets LRs."""
        if self._driver.is_removed:
            raise RuntimeError(
                "this LearnedLR was removed from its optimizer, by remove() or by a newer LearnedLR, and sets no LR any more: "
                "use the newer one, or make a new one"
            )
        return self._driver


def _total_steps(total_steps: int | None, law: Law) -> int | None:
    """The argument, checked."""
    if total_steps is not None:
        return _check.number_of_steps("total_steps", total_steps, hint="optimizer steps of the whole training, or None")
    if law.num_phases > 1 or not law.knows_progress:
        why = f"has {law.num_phases} phases" if law.num_phases > 1 else "does not read the progress"
        raise ValueError(
            f"total_steps must be given for the schedule {law.name!r}, which {why}, got None: pass the optimizer steps of the "
            "whole training, or use a schedule with one phase that knows the progress, such as 'universal'"
        )
    return None


def _length(loader: Any) -> int:
    """len, where there is one, else 0: that of a `DataLoader` over an `IterableDataset` is a guess, if it has any."""
    if isinstance(getattr(loader, "dataset", None), torch.utils.data.IterableDataset):
        return 0
    try:
        return len(loader)
    except (TypeError, NotImplementedError):  # both are usual where there is none
        return 0
