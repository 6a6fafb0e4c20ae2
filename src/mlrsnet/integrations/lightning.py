"""Learned schedules inside a Lightning Trainer.

Where the hooks stand, and what happens in them:

    every micro-batch     training_step, on_before_zero_grad, on_before_backward: its loss is observed, backward
    the last of a window  unscale, on_before_optimizer_step: the LR is set, clip, optimizer.step
"""

import importlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from mlrsnet import _check
from mlrsnet._engine import relative
from mlrsnet.integrations._rehearsal import any_optimizer, check_arguments
from mlrsnet.metatrain import MetaTrainer
from mlrsnet.nets import ScheduleNet
from mlrsnet.schedule import Schedule
from mlrsnet.scheduler import LearnedLR

__all__ = ["LearnedLRCallback", "LossFeed", "MetaTrainCallback"]

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""The two names under which Lightning comes; each has classes of its own."""


def _callback_class() -> Any:
    """`Callback` of the package that is in use; where none is yet, of the first that is installed."""
    for name in sorted(PACKAGES, key=lambda name: name not in sys.modules):
        with suppress(ModuleNotFoundError):
            return importlib.import_module(name).Callback
    raise ImportError(
        "mlrsnet.integrations.lightning needs Lightning, which is not installed: pip install 'mlrsnet[lightning]'"
    )


if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    Callback = _callback_class()


class LossFeed(Callback):
    """Gives every step's loss to the `LearnedLR` that `configure_optimizers` returned as its scheduler.

    Lightning's own `scheduler.step()` comes after the optimizer's step and brings no loss; this brings it, in time.
    `lr` is the `LearnedLR` in use, from the start of training on.
    """

    lr: LearnedLR | None = None

    def __init__(self) -> None:
        self._waiting = False  # whether a loss was observed that no optimizer step has used
        self._closed = False  # whether this batch was the last one of its accumulation window
        self._monitors: list[Any] = []
        self._undo: list[Callable[[], None]] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Find the schedule, or make it: the optimizer and the number of steps are known, and a checkpoint is loaded."""
        self._check_alone(trainer)
        self.lr = self._prepare(trainer, pl_module, _only_optimizer(trainer, self))
        if self.lr.is_relative:
            scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
            relative.check_loop("Lightning", scaled=scaled, clips_later=bool(trainer.gradient_clip_val))
        self.lr.engine.optimizer_steps.trust()  # the Trainer also steps where a batch was left out
        self._waiting = self._closed = False
        self._defer_monitors(trainer)

    def on_before_zero_grad(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> None:
        """A new accumulation window: a loss that still waits belongs to gradients that are thrown away."""
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
        if self.lr is not None:
            if not self._waiting and not self.lr.last_epoch:
                _check.warn(
                    "no loss reached LearnedLR before the first optimizer step, which takes the optimizer's own LR: in manual "
                    "optimization call self.manual_backward(loss), not loss.backward()"
                )
            self._closed = True
            self._use(self.lr)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Let the monitors log the LR that this step has used."""
        if self._closed:
            for monitor in self._monitors:
                type(monitor).on_train_batch_start(monitor, trainer, pl_module, batch, batch_idx)
        self._closed = False

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave nothing behind."""
        self._release()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leave nothing behind."""
        self._release()

    def _prepare(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> LearnedLR:
        found = [config.scheduler for config in trainer.lr_scheduler_configs]
        if len(found) != 1 or not isinstance(found[0], LearnedLR):
            raise ValueError(
                f"LossFeed needs configure_optimizers to return one LearnedLR as its scheduler, got {_names(found)}: return "
                "one, or use LearnedLRCallback, which makes its own"
            )
        return found[0]

    def _use(self, lr: LearnedLR) -> None:
        if self._waiting:
            lr.step()
        self._waiting = False

    def _check_alone(self, trainer: Any) -> None:
        others = [callback for callback in trainer.callbacks if isinstance(callback, LossFeed) and callback is not self]
        if others:
            raise ValueError(
                f"only one callback can set the LR, got {_names([self, *others])}: keep one in Trainer(callbacks=[...])"
            )

    def _defer_monitors(self, trainer: Any) -> None:
        """LearningRateMonitor reads the LR before a batch, when that of its step is not known: let it read afterwards."""
        self._monitors = [callback for callback in trainer.callbacks if _is_a(callback, "LearningRateMonitor")]
        for monitor in self._monitors:
            self._replace(monitor, "on_train_batch_start", _do_nothing)

    def _replace(self, thing: Any, name: str, function: Callable[..., Any]) -> None:
        """Give one object another method until the training ends."""
        before = vars(thing).get(name)
        setattr(thing, name, function)
        self._undo.append(lambda: delattr(thing, name) if before is None else setattr(thing, name, before))

    def _release(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._monitors = []


class _Resumable(LossFeed):
    """A feed that makes the schedule itself and keeps its state in the checkpoint."""

    total_steps: int | None

    def __init__(self) -> None:
        super().__init__()
        self._loaded: dict[str, Any] | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begin anew, unless this Trainer has trained before and goes on."""
        if stage == "fit":
            self._loaded = None
            if not trainer.global_step:
                self._forget()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state until the optimizer is there."""
        self._loaded = state_dict

    def _forget(self) -> None:
        self.lr = None

    def _check_no_scheduler(self, trainer: Any) -> None:
        found = [config.scheduler for config in trainer.lr_scheduler_configs]
        if found:
            instead = ", or pass LossFeed() instead of this callback" if isinstance(found[0], LearnedLR) else ""
            raise ValueError(
                f"configure_optimizers must return no LR scheduler with {type(self).__name__}, got {_names(found)}, and both would "
                f"set the LR: return the optimizer alone{instead}"
            )

    def _horizon(self, trainer: Any) -> int:
        """Optimizer steps of the whole training."""
        if self.total_steps is not None:
            return self.total_steps
        steps = trainer.estimated_stepping_batches
        varying = any(_is_a(callback, "GradientAccumulationScheduler") for callback in trainer.callbacks)
        if varying or not 0 < steps < math.inf:  # Lightning says inf or -1 where it does not know
            raise ValueError(
                f"total_steps must be given to {type(self).__name__} where the Trainer cannot tell it (max_epochs="
                f"{trainer.max_epochs}, max_steps={trainer.max_steps}, data without a length, or a GradientAccumulationScheduler), "
                "got None: pass the optimizer steps of the whole training"
            )
        return int(steps)

    def _rest(self, trainer: Any) -> int:
        """The horizon of a schedule that begins now."""
        horizon, done = self._horizon(trainer), trainer.global_step
        if done:
            _check.warn(
                f"the training goes on at step {done} from a checkpoint without a state of {type(self).__name__}: the schedule "
                "begins anew, for the steps that are left"
            )
        return max(1, horizon - done)

    def _prolong(self, trainer: Any, lr: LearnedLR) -> None:
        """The horizon of a schedule that goes on."""
        horizon = self._horizon(trainer)
        if horizon > lr.total_steps:
            _check.warn(
                f"the training was made longer, from {lr.total_steps} to {horizon} steps: the schedule follows the new horizon "
                "from here on, and does not equal that of a run planned so from the start"
            )
            lr.extend(horizon)
        elif horizon < lr.total_steps:
            _check.warn(
                f"the saved run had total_steps={lr.total_steps}, which is kept instead of {horizon}: a horizon can only grow"
            )


class LearnedLRCallback(_Resumable):
    """Sets the LR of every step with a learned schedule: `Trainer(callbacks=[LearnedLRCallback(...)])`.

    Args:
        schedule: a name, the path of a `.safetensors` file, `hf://owner/name`, or a `Schedule`.
        total_steps: optimizer steps of the whole training; `trainer.estimated_stepping_batches` if None.
        num_classes: classes, or size of the vocabulary; only some schedules need it and say so.
        options: `initial_loss`, `scale`, `min_lr`, `max_lr`, `on_nonfinite` and `process_group` of `LearnedLR`.
    """

    def __init__(
        self,
        schedule: str | os.PathLike[str] | Schedule = "universal",
        total_steps: int | None = None,
        num_classes: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.total_steps = total_steps
        self._arguments = {
            "schedule": schedule if isinstance(schedule, Schedule) else Schedule.load(schedule),
            "num_classes": num_classes,
            **options,
        }
        check_arguments(total_steps=total_steps, **self._arguments)

    def state_dict(self) -> dict[str, Any]:
        """The schedule's state, part of every checkpoint."""
        return self.lr.state_dict() if self.lr is not None else self._loaded or {}

    def _prepare(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> LearnedLR:
        self._check_no_scheduler(trainer)
        state = self._loaded or self.state_dict()
        if not state:
            return LearnedLR(optimizer, total_steps=self._rest(trainer), **self._arguments)
        lr = LearnedLR(optimizer, total_steps=state.get("total_steps", 1), **self._arguments)
        lr.load_state_dict(state)
        self._prolong(trainer, lr)
        return lr


class MetaTrainCallback(_Resumable):
    """Meta-trains a schedule inside a Trainer, in automatic optimization, with the module's own optimizer.

    At every T_val-th step the network that sets the LR learns from one batch of `val_dataloader` (see `MetaTrainer`).

    Args:
        val_loss: `val_loss(pl_module, batch)` returns the mean loss of a validation batch, which is on the module's
            device, under the Trainer's precision. What it logs appears among the training's metrics.
        val_dataloader: held-out batches, drawn one at a time and again from the start: a DataLoader, or a list.
        total_steps: optimizer steps of the whole training; `trainer.estimated_stepping_batches` if None.
        every: T_val, steps between meta-updates; 100 if None.
        net: the schedule network, trained in place; the paper's `LSTMNet()` if None.
        num_classes: for the range of the LR; see `LearnedLR`.
        options: the further arguments of `MetaTrainer`, such as `meta_optimizer`, `num_phases` and `name`.
    """

    def __init__(
        self,
        val_loss: Callable[[Any, Any], Tensor],
        val_dataloader: Iterable[Any],
        *,
        total_steps: int | None = None,
        every: int | None = None,
        net: ScheduleNet | None = None,
        num_classes: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if not callable(val_loss):
            raise TypeError(
                f"val_loss must be a function of the module and a batch that returns a loss, got {val_loss!r}"
            )
        if not isinstance(val_dataloader, Iterable) or isinstance(val_dataloader, Iterator):
            raise TypeError(
                f"val_dataloader must give its batches again and again, got {val_dataloader!r}: pass a DataLoader or a list"
            )
        self.val_loss, self.val_dataloader, self.total_steps = val_loss, val_dataloader, total_steps
        self.meta: _InsideTrainer | None = None
        self._arguments = {"every": every, "net": net, "num_classes": num_classes, **options}
        # A mistake is told now, and a network made here does not draw from the training's random numbers.
        rehearsal = _InsideTrainer(
            nn.Identity(),
            any_optimizer(),
            total_steps=1 if total_steps is None else total_steps,
            val_loss=_do_nothing,
            scaler=None,
            **{**self._arguments, "process_group": False},
        )
        self.net = self._arguments["net"] = rehearsal.net
        self._batches: Iterator[Any] | None = None
        self._drawn = 0

    def schedule(self) -> Schedule:
        """What was learned so far."""
        if self.meta is None:
            raise RuntimeError("schedule() needs a training to learn from, got none yet: call trainer.fit(...) first")
        return self.meta.schedule()

    def state_dict(self) -> dict[str, Any]:
        """The state of the meta-training, part of every checkpoint, and the place in `val_dataloader`."""
        return {"meta": self.meta.state_dict(), "drawn": self._drawn} if self.meta is not None else self._loaded or {}

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A loss that still waits after its step was that of a step the GradScaler skipped."""
        if self._closed and self._waiting and self.meta is not None:
            self.meta.count_skipped()
            self._waiting = False
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def _forget(self) -> None:
        super()._forget()
        self.meta = self._batches = None
        self._drawn = 0

    def _prepare(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> LearnedLR:
        self._check_no_scheduler(trainer)
        if not any(_is_a(trainer.strategy, name) for name in ("SingleDeviceStrategy", "DDPStrategy")):
            raise ValueError(
                f"MetaTrainCallback needs the whole weights in every process, got {type(trainer.strategy).__name__}: use one "
                'device or strategy="ddp"'
            )
        state = self._loaded or self.state_dict()
        known = state.get("meta", {}).get("lr", {}).get("total_steps", 1)
        self.meta = _InsideTrainer(
            trainer.strategy.model,
            optimizer,
            total_steps=known if state else self._rest(trainer),
            val_loss=lambda: self._next_val_loss(trainer, pl_module),
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            **self._arguments,
        )
        if state:
            self.meta.load_state_dict(state["meta"])
            self._prolong(trainer, self.meta.lr)
        if self._loaded:
            self._batches, self._drawn = None, state["drawn"]
        self._take_over(self.meta)
        return self.meta.lr

    def _use(self, lr: LearnedLR) -> None:
        """Nothing yet: gradients are clipped after this hook, and the step sets its LR itself."""

    def _take_over(self, meta: "_InsideTrainer") -> None:
        """The Trainer goes on calling `optimizer.step`, through whatever precision and strategy; `meta.step` stands there."""
        own_step = meta.own_step

        def step(closure: Callable[[], Any] | None = None) -> Any:
            result = None if closure is None else closure()  # forward, backward, hooks and clipping
            if self._waiting and not _found_infinities(meta.optimizer):
                meta.step()
                self._waiting = False
            else:
                own_step()
            return result

        self._replace(meta.optimizer, "step", step)

    def _next_val_loss(self, trainer: Any, pl_module: Any) -> Tensor:
        """The next validation batch, on the way of the training batches."""
        batch = trainer.precision_plugin.convert_input(self._draw())
        batch = pl_module._on_before_batch_transfer(batch, dataloader_idx=0)
        batch = trainer.strategy.batch_to_device(batch, dataloader_idx=0)
        with trainer.precision_plugin.forward_context():
            return self.val_loss(pl_module, batch)

    def _draw(self) -> Any:
        if self._batches is None:  # at the start, and after a checkpoint: back to where it was
            self._batches = iter(self.val_dataloader)
            for _ in range(self._drawn):
                next(self._batches, None)
        for batch in self._batches:
            self._drawn += 1
            return batch
        self._batches, self._drawn = iter(self.val_dataloader), 1
        for batch in self._batches:
            return batch
        raise ValueError("val_dataloader must have at least one batch, got none: pass held-out data")


class _InsideTrainer(MetaTrainer):
    """A MetaTrainer whose scaler is the Trainer's, which has unscaled the gradients and seen to infinities by then."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, **options: Any) -> None:
        self.own_step = optimizer.step
        super().__init__(model, optimizer, **options)

    def _take(self) -> None:
        self.own_step()

    def count_skipped(self) -> None:
        """A step that the GradScaler skipped: the LR goes on, the network learns nothing."""
        loss = self.engine.losses.collect(None)
        assert loss is not None
        if self.update_due:
            self._skip("the GradScaler skipped the step")
        self._remember(loss)
        self.engine.advance(loss)
        self._count()


def undivided(trainer: Any, loss: Tensor) -> Tensor:
    """The loss that `training_step` returned, from the one that is back-propagated: without AMP scale and division."""
    loss, scaler = loss.detach(), getattr(trainer.precision_plugin, "scaler", None)
    if scaler is not None:
        loss = loss / scaler.scale(torch.ones((), device=loss.device))  # unlike get_scale(), without a synchronisation
    # In the loss's own precision, where x / n * n is x again for most n (all of the form 2^i + 2^j).
    return loss * trainer.accumulate_grad_batches


def _only_optimizer(trainer: Any, callback: LossFeed) -> Optimizer:
    """The training's one optimizer."""
    name, optimizers = type(callback).__name__, [each for each in trainer.optimizers if each.param_groups]
    if len(optimizers) != 1:
        raise ValueError(
            f"configure_optimizers must return one optimizer for {name}, got {len(optimizers)}: for several, give each a "
            "LearnedLR of its own and call its step(loss) in training_step before its optimizer's step(), without this callback"
        )
    if isinstance(optimizers[0], LBFGS):
        raise ValueError(
            f"configure_optimizers must return an optimizer that reads its LR after the loss for {name}, got LBFGS, which reads it "
            "before: use another optimizer"
        )
    return optimizers[0]


def _found_infinities(optimizer: Optimizer) -> bool:
    """Whether a GradScaler has left it to a fused optimizer to skip this step."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)


def _is_a(thing: Any, name: str) -> bool:
    """By name, since each package has a class of it."""
    return any(kind.__name__ == name for kind in type(thing).__mro__)


def _names(things: list[Any]) -> str:
    return " and ".join(type(thing).__name__ for thing in things) or "none"


def _do_nothing(*args: Any, **kwargs: Any) -> Any:
    """Stand in for a hook."""
