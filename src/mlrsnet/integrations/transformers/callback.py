"""`LearnedLRCallback`: brings every step's loss to a `LearnedLR` in time.

The Trainer does not pass the loss to callbacks, and it calls a scheduler's `step()` after the optimizer's. So the callback
wraps `Trainer.training_step` to see the loss, and sets the LR in `on_pre_optimizer_step`. Unless the user passes a
`LearnedLR`, the Trainer creates one in place of its linear schedule. It then logs, saves and resumes that scheduler like
any other.
"""

import math
import os
import sys
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mlrsnet import _check
from mlrsnet._engine.groups import owner
from mlrsnet.integrations._rehearsal import check_arguments
from mlrsnet.schedule import DEFAULT, Schedule
from mlrsnet.scheduler import LearnedLR

try:
    from transformers import Trainer, TrainerCallback
except ImportError as error:
    raise ImportError(
        f"LearnedLRCallback needs transformers and accelerate ({error}): pip install 'mlrsnet[transformers]'"
    ) from None

__all__ = ["LearnedLRCallback"]

DEFAULTS = {"schedule": DEFAULT, "total_steps": None, "num_classes": None}


class LearnedLRCallback(TrainerCallback):
    """Sets the LR of every optimizer step of a `Trainer` from the mean loss of its whole batch.

    `Trainer(..., callbacks=[LearnedLRCallback(...)])` is enough. To bring your own `LearnedLR`, pass
    `optimizers=(optimizer, LearnedLR(optimizer, ...))` and `LearnedLRCallback()` without arguments.

    Args:
        schedule: a name, the path of a `.safetensors` file, `hf://owner/name`, or a `Schedule`.
        total_steps: optimizer steps of the whole training; the Trainer's own count if None.
        num_classes: classes, or size of the vocabulary. Only some schedules need it, and they say so.
        monitor: the name of a logged validation loss, such as `eval_loss`, for `LearnedLR.validate`; lower must be better.
        options: `initial_loss`, `scale`, `min_lr`, `max_lr`, `on_nonfinite` and `process_group` of `LearnedLR`.
    """

    without_effect: tuple[str, ...] = ("learning_rate", "warmup_steps", "lr_scheduler_type", "lr_scheduler_kwargs")
    """Training arguments that this callback does not read."""

    def __init__(
        self,
        schedule: str | os.PathLike[str] | Schedule = DEFAULT,
        total_steps: int | None = None,
        num_classes: int | None = None,
        monitor: str | None = None,
        **options: Any,
    ) -> None:
        self.monitor = monitor
        self._settings = {"schedule": schedule, "total_steps": total_steps, "num_classes": num_classes, **options}
        check_arguments(**self._settings, monitor=monitor)
        self._trains = self._was_validated = False
        self._offered: set[str] = set()  # metrics of this training's evaluations
        self._trainer: Any = None
        self._created: LearnedLR | None = None
        self._loss: Tensor | None = None  # sum over the batch so far
        self._times: int | None = None  # what _probe found in this training; None before

    def attach(self, trainer: Trainer) -> None:
        """Join an existing Trainer. `Trainer(callbacks=[...])` does this by itself."""
        others = [other for other in trainer.callback_handler.callbacks if isinstance(other, LearnedLRCallback)]
        if self._trainer is not None or any(other is not self for other in others):
            raise RuntimeError(
                "a Trainer can have one LearnedLRCallback, and a LearnedLRCallback one Trainer, got a second one: "
                "make a new callback for every Trainer"
            )
        if getattr(trainer, "is_deepspeed_enabled", False):
            raise ValueError(
                "deepspeed must be off for LearnedLRCallback, got a configuration: DeepSpeed steps the schedule after the "
                "optimizer and without the loss; use DDP"
            )
        self._check(trainer.lr_scheduler)
        if self not in others:
            trainer.add_callback(self)
        self._trainer, self._training_step = trainer, trainer.training_step
        trainer.training_step = self._listen  # type: ignore[method-assign]
        trainer.create_scheduler = self._create_scheduler  # type: ignore[method-assign]

    def make(self, num_training_steps: int, optimizer: Optimizer) -> LearnedLR:
        """The schedule for a training of so many steps, by the arguments of this callback."""
        _check_optimizer(owner(self._trainer.optimizer))
        self._tell_what_has_no_effect(self._trainer.args)
        settings = {**self._settings}
        if settings["total_steps"] is None:
            settings["total_steps"] = num_training_steps
        self._created = LearnedLR(optimizer, **settings)
        return self._created

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Attach to the Trainer whose constructor calls this."""
        trainer = calling_trainer()
        if trainer is not None and self in trainer.callback_handler.callbacks:
            self.attach(trainer)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Check the Trainer's scheduler and optimizer. Any checkpoint is loaded by now."""
        if self._trainer is None:
            raise RuntimeError(
                "LearnedLRCallback must know its Trainer before it trains, got add_callback: pass it in "
                "Trainer(callbacks=[...]), or call attach(trainer) instead"
            )
        lr, optimizer = self._trainer.lr_scheduler, owner(self._trainer.optimizer)
        self._check(lr)
        if lr.optimizer is not optimizer:
            raise ValueError(
                f"optimizers must hold the optimizer that its LearnedLR was built on, got another {type(optimizer).__name__}: "
                "pass optimizers=(optimizer, LearnedLR(optimizer, ...))"
            )
        if self.monitor is not None and args.eval_strategy == "no":
            raise ValueError(
                f"eval_strategy must be 'epoch' or 'steps' with monitor={self.monitor!r}, got 'no': there would be nothing to read"
            )
        self._check_horizon(lr, state.max_steps)
        self._times, self._trains, self._was_validated, self._offered = None, True, False, set()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """What is evaluated from now on is not for the schedule."""
        self._trains = False

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Drop the loss of an unfinished batch. All metrics of the last evaluation are known by now."""
        self._loss = None
        if self._offered and not self._was_validated:
            raise ValueError(
                f"monitor must be a metric of the evaluation, got {self.monitor!r}, and there are {sorted(self._offered)}: name "
                "one of them, such as eval_loss"
            )

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set the LR of the step that follows. Gradients are complete and clipped by now."""
        if self._loss is None:
            raise RuntimeError(
                f"{type(self._trainer).__name__} must train through Trainer.training_step, or its loss cannot be seen, got no "
                "loss: do not replace trainer.training_step after the callback joined, or call LearnedLR.step(loss) yourself"
            )
        self._trainer.lr_scheduler.step(self._loss)
        self._loss = None

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Give the validation loss to the schedule, while it trains. With several data sets this is called for each."""
        if self.monitor is None or not self._trains:
            return
        self._offered.update(metrics or {})
        if self.monitor in (metrics or {}):
            self._was_validated = True
            self._trainer.lr_scheduler.validate(metrics[self.monitor])

    def _create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> Any:
        """Replaces `Trainer.create_scheduler`."""
        trainer = self._trainer
        if trainer.lr_scheduler is None:
            trainer.lr_scheduler = self.make(num_training_steps, optimizer or trainer.optimizer)
            trainer._created_lr_scheduler = True  # the Trainer makes a new one for every train()
        return trainer.lr_scheduler

    def _tell_what_has_no_effect(self, args: Any) -> None:
        """Warn about training arguments that the user has set, and that a learned schedule does not read."""
        fields = type(args).__dataclass_fields__
        values = {name: getattr(args, name) for name in self.without_effect}
        given = {name: value for name, value in values.items() if value not in (fields[name].default, "learned")}
        if given:
            shown = ", ".join(f"{name}={getattr(value, 'value', value)}" for name, value in given.items())
            _check.warn(
                f"TrainingArguments should leave the LR to the learned schedule, got {shown}, which has no effect: leave it out; "
                "scale= makes all LRs larger or smaller"
            )

    def _check(self, scheduler: Any) -> None:
        """Raise if the Trainer already has a scheduler that does not fit this callback."""
        if scheduler is None or scheduler is self._created:
            return
        if not isinstance(scheduler, LearnedLR):
            raise TypeError(
                f"optimizers must hold a LearnedLR or None next to LearnedLRCallback, which sets every LR, got "
                f"{type(scheduler).__name__}: pass optimizers=(optimizer, None)"
            )
        given = {name: value for name, value in self._settings.items() if value != DEFAULTS.get(name)}
        if given:
            shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise ValueError(
                f"LearnedLRCallback must have no arguments where optimizers= holds a LearnedLR, which has its own, got {shown}: "
                "pass LearnedLRCallback(), or optimizers=(optimizer, None)"
            )

    def _check_horizon(self, lr: LearnedLR, max_steps: int) -> None:
        """The horizon is the user's total_steps, or else the Trainer's, also when a run is resumed with more steps.

        `LearnedLR.anneal` sets another, and a run may have none yet.
        """
        if lr.is_annealing or not lr.has_end:
            return
        horizon = max_steps if self._settings["total_steps"] is None else self._settings["total_steps"]
        if lr is self._created and lr.total_steps < horizon:
            lr.extend(horizon)
        if lr.total_steps != horizon:
            _check.warn(
                f"total_steps should be {horizon}, the steps that the Trainer takes, got {lr.total_steps} from LearnedLR or the "
                f"checkpoint: build LearnedLR with total_steps={horizon}, or leave it to LearnedLRCallback"
            )

    def _listen(self, model: Any, inputs: Any, num_items_in_batch: Any = None, **more: Any) -> Tensor:
        """Replaces `Trainer.training_step`: does the same, and adds the micro-batch's share to the batch's mean loss.

        The Trainer back-propagates shares of the mean loss: their sum over the micro-batches, averaged over the ranks, is
        the mean. That holds whether or not the model divides by `num_items_in_batch`.
        """
        if self._times is None:
            self._times = self._probe(model, inputs, num_items_in_batch)
        loss = self._training_step(model, inputs, num_items_in_batch, **more)
        share = loss.detach().float() / self._excess()
        self._loss = share if self._loss is None else self._loss + share
        return loss

    def _excess(self) -> int:
        """The sum of the micro-batch losses divided by their mean loss: 1, unless `num_items_in_batch` was ignored."""
        if not self._times:
            return 1
        divided = getattr(self._trainer, "loss_is_scaled_for_ga", None) is False
        return self._times * (1 if divided else self._trainer.current_gradient_accumulation_steps)

    def _probe(self, model: Any, inputs: Any, count: Any) -> int:
        """0 if the loss is divided by `num_items_in_batch`. Otherwise the factor by which the Trainer multiplies the mean.

        The Trainer expects any model that takes keyword arguments, and any `compute_loss_func`, to divide the sum of losses
        by that count. Many classifiers return their mean instead. A second loss, with twice the count, shows which it is.
        """
        args = self._trainer.args
        if count is None or args.gradient_accumulation_steps * max(args.world_size, args.n_gpu) == 1:
            return 0
        model.eval()  # training_step goes back to train()
        mean, loss, other = (self._loss_for(model, inputs, number) for number in (None, count, 2 * count))
        if not (math.isfinite(mean) and math.isfinite(loss)) or mean == 0 or abs(loss - other) > abs(loss) / 4:
            return 0
        self._times = max(1, round(loss / mean))
        if self._excess() > 1:
            _check.warn(
                f"the loss ignores num_items_in_batch, but the Trainer relies on it: the loss it logs and its gradients are "
                f"{self._excess()} times those of the mean. The schedule reads the mean. Set model.accepts_loss_kwargs = False "
                "before making the Trainer, or divide by num_items_in_batch in compute_loss_func"
            )
        return self._times

    @torch.no_grad()
    def _loss_for(self, model: Any, inputs: Any, count: Any) -> float:
        device = self._trainer.args.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            inputs = self._trainer._prepare_inputs(inputs)  # a new dict: compute_loss takes the labels out
            return float(self._trainer.compute_loss(model, inputs, num_items_in_batch=count).mean())


def calling_trainer() -> Trainer | None:
    """The Trainer that called the function that calls this one, found on the call stack because nothing tells it."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        caller = frame.f_locals.get("self")
        if isinstance(caller, Trainer):
            return caller
    return None


def _check_optimizer(optimizer: Any) -> None:
    """Refuse an optimizer that steps inside the backward pass."""
    if type(optimizer).__name__ == "LayerWiseDummyOptimizer":
        raise ValueError(
            "optim must leave the step to the Trainer for a learned schedule, got a layer-wise one, which steps inside "
            "backward, before the LR is known: use its plain form, or another optimizer"
        )
