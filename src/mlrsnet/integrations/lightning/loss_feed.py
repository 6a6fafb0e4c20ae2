"""`LossFeed`: brings every step's loss to a `LearnedLR` in time."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mlrsnet import _check
from mlrsnet.integrations.lightning.framework import Callback, class_names, is_a, only_optimizer, scaler_of
from mlrsnet.integrations.lightning.several import OwnSteps
from mlrsnet.scheduler import LearnedLR

MARGIN = 1.1
"""The Trainer's own count may be off by a step or so per epoch."""


class LossFeed(Callback):
    """Gives every step's loss to the `LearnedLR` that `configure_optimizers` returned as its scheduler.

    Lightning itself calls `scheduler.step()` after the optimizer's step, and without a loss. `lr` is the `LearnedLR` in
    use, once training has started.

    With several optimizers, in manual optimization, `configure_optimizers` returns a `LearnedLR` for each, and the module
    steps them itself, since only it knows which loss is whose. This callback then raises if one never gets a loss, and lets
    `LearningRateMonitor` show the LR that a step used. `lr` stays None.

    Args:
        monitor: the name of a logged validation loss, such as `val_loss`, for `LearnedLR.validate`; lower must be better. Only
            with one optimizer.
    """

    lr: LearnedLR | None = None
    _allows_several = True

    def __init__(self, monitor: str | None = None) -> None:
        self.monitor = monitor
        self._waiting = False  # a loss was observed, and no optimizer step has used it yet
        self._closed = False  # this batch was the last one of its accumulation window
        self._several: OwnSteps | None = None
        self._monitors: list[Any] = []
        self._undo: list[Callable[[], None]] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Find or make the schedule. Now the optimizer and the number of steps are known, and any checkpoint is loaded."""
        self._check_alone(trainer)
        self._check_monitor(trainer)
        self._waiting = self._closed = False
        self._several = OwnSteps(trainer) if len(trainer.optimizers) > 1 and self._allows_several else None
        if self._several is None:
            self.lr = self._prepare(trainer, pl_module, only_optimizer(trainer, self))
            self.lr.trust_order()  # the Trainer also steps for a batch that training_step skipped
        self._defer_monitors(trainer)

    def on_before_zero_grad(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> None:
        """Start a new accumulation window. An unused loss goes with the gradients that are thrown away."""
        if self.lr is not None:
            self.lr.discard()
            self._waiting = False

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """Observe the loss of a micro-batch."""
        if self.lr is not None:
            self.lr.observe(undivided(trainer, loss))
            self._waiting = True

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> None:
        """Set the LR of the step that follows."""
        if self._several is not None:
            self._several.check(optimizer)
            self._closed = True
        elif self.lr is not None:
            if not self._waiting and not self.lr.last_epoch:
                _check.warn(
                    "no loss reached LearnedLR before the first optimizer step, so it uses the optimizer's own LR: in manual "
                    "optimization call self.manual_backward(loss), not loss.backward()"
                )
            self._closed = True
            self._use(self.lr)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Let the monitors log the LR that this step used."""
        if self._closed:
            for monitor in self._monitors:
                type(monitor).on_train_batch_start(monitor, trainer, pl_module, batch, batch_idx)
        self._closed = False

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Give the validation loss to the schedule, while it trains."""
        if self.monitor is None or self.lr is None or trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        if self.monitor not in trainer.callback_metrics:
            raise ValueError(
                f"monitor must be a metric that validation_step logs, got {self.monitor!r}, and there are "
                f"{sorted(trainer.callback_metrics)}: call self.log({self.monitor!r}, loss) there"
            )
        self.lr.validate(trainer.callback_metrics[self.monitor])

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Put every replaced method back."""
        self._release()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Put every replaced method back."""
        self._release()

    def _prepare(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> LearnedLR:
        found = [config.scheduler for config in trainer.lr_scheduler_configs]
        if len(found) != 1 or not isinstance(found[0], LearnedLR):
            raise ValueError(
                f"LossFeed needs configure_optimizers to return one LearnedLR as its scheduler, got {class_names(found)}: "
                "return one, or use LearnedLRCallback, which makes its own"
            )
        self._check_horizon(trainer, found[0])
        return found[0]

    def _check_horizon(self, trainer: Any, lr: LearnedLR) -> None:
        """Warn if the Trainer will stop long before the schedule does, and so at a high LR."""
        steps = trainer.estimated_stepping_batches  # inf or -1 if Lightning does not know
        if lr.has_end and not lr.is_annealing and 0 < MARGIN * steps < lr.total_steps:
            _check.warn(
                f"total_steps should be {steps}, the steps that the Trainer takes, got {lr.total_steps} from LearnedLR, whose LR "
                f"would not fall in time: build LearnedLR with total_steps={steps}, or use LearnedLRCallback"
            )

    def _use(self, lr: LearnedLR) -> None:
        if self._waiting:
            lr.step()
        self._waiting = False

    def _check_alone(self, trainer: Any) -> None:
        others = [callback for callback in trainer.callbacks if isinstance(callback, LossFeed) and callback is not self]
        if others:
            raise ValueError(
                f"only one callback can set the LR, got {class_names([self, *others])}: keep one in Trainer(callbacks=[...])"
            )

    def _check_monitor(self, trainer: Any) -> None:
        """Raise if there will be no validation loss, or several schedules to give it to."""
        if self.monitor is None:
            return
        if not trainer.enable_validation:
            raise ValueError(
                f"monitor={self.monitor!r} needs validation data and a validation_step that logs it, got none: pass "
                "val_dataloaders, or leave monitor out"
            )
        if len(trainer.optimizers) > 1:
            raise ValueError(
                f"monitor={self.monitor!r} needs one optimizer, got {len(trainer.optimizers)}: call validate(loss) of each "
                "LearnedLR in your module instead"
            )

    def _defer_monitors(self, trainer: Any) -> None:
        """LearningRateMonitor reads the LR before a batch, when its step's LR is not known yet. Make it read afterwards."""
        self._monitors = [callback for callback in trainer.callbacks if is_a(callback, "LearningRateMonitor")]
        for monitor in self._monitors:
            self._replace(monitor, "on_train_batch_start", _do_nothing)

    def _replace(self, thing: Any, name: str, function: Callable[..., Any]) -> None:
        """Replace a method of one object until the training ends."""
        before = vars(thing).get(name)
        setattr(thing, name, function)
        self._undo.append(lambda: delattr(thing, name) if before is None else setattr(thing, name, before))

    def _release(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._monitors = []


def undivided(trainer: Any, loss: Tensor) -> Tensor:
    """The loss that `training_step` returned: Lightning back-propagates it scaled for AMP and divided for accumulation."""
    loss, scaler = loss.detach(), scaler_of(trainer)
    if scaler is not None:
        loss = loss / scaler.scale(torch.ones((), device=loss.device))  # get_scale() would wait for the device
    # In the loss's own precision, x / n * n is x again for most n (all of the form 2^i + 2^j).
    return loss * trainer.accumulate_grad_batches


def _do_nothing(*args: Any, **kwargs: Any) -> None:
    """Replaces a hook."""
