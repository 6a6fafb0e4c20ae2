"""`MetaTrainCallback`: meta-training inside a Lightning Trainer.

`LearnedLR` needs none of this: return it from `configure_optimizers`.

When Lightning calls what, in automatic optimization:

    every micro-batch     training_step, on_before_backward (the loss is observed), backward
    last of a window      unscale, clip, optimizer.step (`MetaTrainer.step` in its place), on_train_batch_end
"""

import importlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mlrsnet.meta import MetaTrainer
from mlrsnet.schedule import Schedule

__all__ = ["MetaTrainCallback"]

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""Lightning has two package names, each with its own classes."""

WHOLE = ("SingleDeviceStrategy", "DDPStrategy")
"""Strategies with the whole weights in every process."""


def _callback_class() -> Any:
    """`Callback` of the package that is already imported, else of the first one that is installed."""
    for name in sorted(PACKAGES, key=lambda name: name not in sys.modules):
        with suppress(ModuleNotFoundError):
            return importlib.import_module(name).Callback
    raise ImportError(
        "mlrsnet.integrations.lightning needs Lightning, which is not installed: pip install 'mlrsnet[lightning]'"
    )


if TYPE_CHECKING:
    from lightning.pytorch import Callback as Callback
else:
    Callback = _callback_class()


class MetaTrainCallback(Callback):
    """Meta-trains a schedule inside a Trainer, with the module's own optimizer, in automatic optimization.

    Every T_val steps, the network that sets the LR learns from one batch of `val_dataloader` (see `MetaTrainer`). Each `fit` begins
    anew, unless it goes on from a checkpoint. A `net` that you pass is trained in place.

    Args:
        val_loss: `val_loss(pl_module, batch)` returns the mean loss of a validation batch. The batch is on the module's
            device, and the Trainer's precision applies. What it logs appears among the training's metrics.
        val_dataloader: held-out batches, drawn one at a time, over and over: a DataLoader or a list.
        total_steps: optimizer steps of the whole training; `trainer.estimated_stepping_batches` if None.
        options: other arguments of `MetaTrainer`, such as `num_classes`, `net` and `learning`.
    """

    meta: "InsideTrainer | None" = None

    def __init__(
        self,
        val_loss: Callable[[Any, Any], Tensor],
        val_dataloader: Iterable[Any],
        *,
        total_steps: int | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(val_dataloader, Iterable) or isinstance(val_dataloader, Iterator):
            raise TypeError(
                f"val_dataloader must be iterable more than once, got {val_dataloader!r}: pass a DataLoader or a list"
            )
        self.val_loss, self.total_steps, self._options = val_loss, total_steps, options
        self.batches = Rounds(val_dataloader)
        self._loaded: dict[str, Any] | None = None
        self._waits = False  # a loss was observed, and no optimizer step has used it yet
        self._is_closed = False  # this batch was the last one of its accumulation window

    def schedule(self) -> Schedule:
        """The schedule learned so far."""
        if self.meta is None:
            raise RuntimeError(
                "schedule() needs a training to learn from, and none has run yet: call trainer.fit(...) first"
            )
        return self.meta.schedule()

    def state_dict(self) -> dict[str, Any]:
        """The state of the meta-training and the position in `val_dataloader`, saved in every checkpoint."""
        return {"meta": self.meta.state_dict(), "drawn": self.batches.drawn} if self.meta else self._loaded or {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state until the optimizer exists."""
        self._loaded = state_dict

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begin anew. A checkpoint is loaded after this."""
        if stage == "fit":
            self.meta, self._loaded, self._waits, self._is_closed = None, None, False, False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take the optimizer over. Now it and the number of steps are known, and any checkpoint is loaded."""
        _check_trainer(trainer)
        state, total_steps = self._loaded or {}, self._total_steps(trainer)
        self.batches.begin(state.get("drawn", 0))
        self.meta = InsideTrainer(
            trainer.strategy.model,
            trainer.optimizers[0],
            total_steps=total_steps,
            val_loss=lambda: self._next_val_loss(trainer, pl_module),
            scaler=_scaler(trainer),
            **self._options,
        )
        if state:
            self.meta.load_state_dict(state["meta"])
            if self.meta.total_steps < total_steps:
                self.meta.lr.extend(total_steps)
        self.meta.optimizer.step = self._step  # type: ignore[method-assign]

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """Observe the loss of a micro-batch: Lightning divides it for accumulation, and scales it for AMP."""
        if self.meta is not None:
            loss, scaler = loss.detach() * trainer.accumulate_grad_batches, _scaler(trainer)
            if scaler is not None:
                loss = loss / scaler.scale(torch.ones((), device=loss.device))  # get_scale() would wait for the device
            self.meta.observe(loss)
            self._waits = True

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> None:
        """The window of accumulated batches is complete."""
        self._is_closed = True

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """If a loss is still unused after its step, the GradScaler skipped that step."""
        if self._waits and self._is_closed and self.meta is not None:
            self.meta.count_skipped()
            self._waits = False
        self._is_closed = False

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Give the optimizer back."""
        self.teardown(trainer, pl_module, "fit")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Give the optimizer back."""
        if self.meta is not None:
            vars(self.meta.optimizer).pop("step", None)

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        """In place of `optimizer.step`, which the Trainer calls through its precision and strategy: also where it has no loss."""
        assert self.meta is not None
        result = None if closure is None else closure()  # forward, backward, hooks and clipping
        if self._waits and not _found_infinities(self.meta.optimizer):
            self.meta.step()
            self._waits = False
        return result

    def _total_steps(self, trainer: Any) -> int:
        """Optimizer steps of the whole training."""
        steps = trainer.estimated_stepping_batches if self.total_steps is None else self.total_steps
        if not 0 < steps < math.inf:  # Lightning says inf or -1 if it does not know
            raise ValueError(
                "total_steps must be given to MetaTrainCallback if the Trainer does not know it, got None with "
                f"max_epochs={trainer.max_epochs} and max_steps={trainer.max_steps}, or with data that has no length: pass the "
                "optimizer steps of the whole training"
            )
        return int(steps)

    def _next_val_loss(self, trainer: Any, pl_module: Any) -> Tensor:
        """The loss of the next validation batch, prepared as a training batch is."""
        batch = trainer.precision_plugin.convert_input(self.batches.draw())
        batch = pl_module._on_before_batch_transfer(batch, dataloader_idx=0)
        batch = trainer.strategy.batch_to_device(batch, dataloader_idx=0)
        with trainer.precision_plugin.forward_context():
            return self.val_loss(pl_module, batch)


class Rounds:
    """Batches one at a time, over and over."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = batches
        self.begin(0)

    def begin(self, drawn: int) -> None:
        """Start in a round of which so many were drawn already."""
        self._round: Iterator[Any] = iter(())
        self.drawn = drawn
        if drawn:
            self._round = iter(self.batches)
            for _ in range(drawn):
                next(self._round, None)

    def draw(self) -> Any:
        """The next one."""
        for batch in self._round:
            self.drawn += 1
            return batch
        self.drawn, self._round = 1, iter(self.batches)
        for batch in self._round:
            return batch
        raise ValueError("val_dataloader must have at least one batch, got none: pass held-out data")


class InsideTrainer(MetaTrainer):
    """A MetaTrainer whose scaler is the Trainer's. By the time of a step, it has unscaled the gradients and handled infinities."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, **options: Any) -> None:
        self.own_step = optimizer.step
        super().__init__(model, optimizer, **options)

    def _take(self) -> None:
        self.own_step()


def _check_trainer(trainer: Any) -> None:
    """Refuse what the callback cannot take over."""
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    if len(trainer.optimizers) != 1 or schedulers:
        found = " and ".join(type(one).__name__ for one in (*trainer.optimizers, *schedulers)) or "none"
        raise ValueError(
            f"configure_optimizers must return one optimizer and no scheduler for MetaTrainCallback, got {found}: return the "
            "optimizer alone, since the callback sets its LR; several need a loop of your own, with a MetaTrainer for each"
        )
    if not any(kind.__name__ in WHOLE for kind in type(trainer.strategy).__mro__):
        raise ValueError(
            f"MetaTrainCallback needs the whole weights in every process, got {type(trainer.strategy).__name__}: use one "
            'device, or strategy="ddp"'
        )


def _scaler(trainer: Any) -> Any:
    """The Trainer's GradScaler, or None."""
    return getattr(trainer.precision_plugin, "scaler", None)


def _found_infinities(optimizer: Optimizer) -> bool:
    """Whether a GradScaler has told a fused optimizer to skip this step."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)
