"""`MetaTrainCallback`: meta-training inside a Trainer."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from mlrsnet.integrations._rehearsal import any_optimizer
from mlrsnet.integrations.lightning.framework import is_a, scaler_of
from mlrsnet.integrations.lightning.resumable import Resumable
from mlrsnet.metatrain import MetaTrainer
from mlrsnet.nets import ScheduleNet
from mlrsnet.schedule import Schedule
from mlrsnet.scheduler import LearnedLR


class MetaTrainCallback(Resumable):
    """Meta-trains a schedule inside a Trainer, with the module's own optimizer, in automatic optimization.

    Every T_val steps, the network that sets the LR learns from one batch of `val_dataloader` (see `MetaTrainer`).

    Args:
        val_loss: `val_loss(pl_module, batch)` returns the mean loss of a validation batch. The batch is on the module's
            device, and the Trainer's precision applies. What it logs appears among the training's metrics.
        val_dataloader: held-out batches, drawn one at a time, over and over: a DataLoader or a list.
        total_steps: optimizer steps of the whole training; `trainer.estimated_stepping_batches` if None.
        every: T_val, steps between meta-updates; 100 if None.
        net: the schedule network, trained in place; the paper's `LSTMNet()` if None.
        num_classes: for the range of the LR; see `LearnedLR`.
        options: other arguments of `MetaTrainer`, such as `meta_optimizer`, `num_phases` and `name`.
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
                f"val_dataloader must be iterable more than once, got {val_dataloader!r}: pass a DataLoader or a list"
            )
        self.val_loss, self.val_dataloader, self.total_steps = val_loss, val_dataloader, total_steps
        self.meta: InsideTrainer | None = None
        self._arguments = {"every": every, "net": net, "num_classes": num_classes, **options}
        # Reports mistakes now. A network made here does not draw from the training's random numbers either.
        rehearsal = InsideTrainer(
            nn.Identity(),
            any_optimizer(),
            total_steps=1 if total_steps is None else total_steps,
            val_loss=_no_val_loss,
            scaler=None,
            **{**self._arguments, "process_group": False},
        )
        self.net = self._arguments["net"] = rehearsal.net
        self._batches: Iterator[Any] | None = None
        self._drawn = 0

    def schedule(self) -> Schedule:
        """The schedule learned so far."""
        if self.meta is None:
            raise RuntimeError(
                "schedule() needs a training to learn from, and none has run yet: call trainer.fit(...) first"
            )
        return self.meta.schedule()

    def state_dict(self) -> dict[str, Any]:
        """The state of the meta-training and the position in `val_dataloader`, saved in every checkpoint."""
        return {"meta": self.meta.state_dict(), "drawn": self._drawn} if self.meta is not None else self._loaded or {}

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """If a loss is still unused after its step, the GradScaler skipped that step."""
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
        if not any(is_a(trainer.strategy, name) for name in ("SingleDeviceStrategy", "DDPStrategy")):
            raise ValueError(
                f"MetaTrainCallback needs the whole weights in every process, got {type(trainer.strategy).__name__}: use one "
                'device, or strategy="ddp"'
            )
        state = self._loaded or self.state_dict()
        known = state.get("meta", {}).get("lr", {}).get("total_steps", 1)
        self.meta = InsideTrainer(
            trainer.strategy.model,
            optimizer,
            total_steps=known if state else self._rest(trainer),
            val_loss=lambda: self._next_val_loss(trainer, pl_module),
            scaler=scaler_of(trainer),
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
        """Do nothing: gradients are clipped after this hook, and `meta.step` sets the LR itself."""

    def _take_over(self, meta: "InsideTrainer") -> None:
        """Put `meta.step` in place of `optimizer.step`, which the Trainer calls through its precision and strategy."""
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
        """The loss of the next validation batch, prepared as a training batch is."""
        batch = trainer.precision_plugin.convert_input(self._draw())
        batch = pl_module._on_before_batch_transfer(batch, dataloader_idx=0)
        batch = trainer.strategy.batch_to_device(batch, dataloader_idx=0)
        with trainer.precision_plugin.forward_context():
            return self.val_loss(pl_module, batch)

    def _draw(self) -> Any:
        if self._batches is None:  # at the start, or after a checkpoint: skip the batches already drawn
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


class InsideTrainer(MetaTrainer):
    """A MetaTrainer whose scaler is the Trainer's. By the time of a step, it has unscaled the gradients and handled infinities."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, **options: Any) -> None:
        self.own_step = optimizer.step
        super().__init__(model, optimizer, **options)

    def _take(self) -> None:
        self.own_step()

    def count_skipped(self) -> None:
        """Count a step that the GradScaler skipped: the schedule advances, the network learns nothing."""
        loss = self.engine.losses.collect(None)
        assert loss is not None
        if self.update_due:
            self._skip("the GradScaler skipped the step")
        self._unroll.remember(loss, self.engine.backend)
        self.engine.advance(loss)
        self._count()


def _found_infinities(optimizer: Optimizer) -> bool:
    """Whether a GradScaler has told a fused optimizer to skip this step."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)


def _no_val_loss() -> Tensor:
    """For the rehearsal, which never validates."""
    raise AssertionError
