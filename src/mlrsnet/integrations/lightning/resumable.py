"""What the two callbacks share that make a schedule themselves: its horizon, and its state in the checkpoint."""

import math
from typing import Any

from mlrsnet import _check
from mlrsnet.integrations.lightning.framework import class_names, is_a
from mlrsnet.integrations.lightning.loss_feed import LossFeed
from mlrsnet.scheduler import LearnedLR


class Resumable(LossFeed):
    """A feed that makes the schedule itself and keeps its state in the checkpoint."""

    total_steps: int | None
    _allows_several = False

    def __init__(self, monitor: str | None = None) -> None:
        super().__init__(monitor)
        self._loaded: dict[str, Any] | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Start over, unless this Trainer has trained before and continues."""
        if stage == "fit":
            self._loaded = None
            if not trainer.global_step:
                self._forget()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state until the optimizer exists."""
        self._loaded = state_dict

    def _forget(self) -> None:
        self.lr = None

    def _check_no_scheduler(self, trainer: Any) -> None:
        found = [config.scheduler for config in trainer.lr_scheduler_configs]
        if found:
            instead = ", or pass LossFeed() instead of this callback" if isinstance(found[0], LearnedLR) else ""
            raise ValueError(
                f"configure_optimizers must return no LR scheduler with {type(self).__name__}, got {class_names(found)}, and "
                f"both would set the LR: return the optimizer alone{instead}"
            )

    def _horizon(self, trainer: Any) -> int:
        """Optimizer steps of the whole training."""
        if self.total_steps is not None:
            return self.total_steps
        steps = trainer.estimated_stepping_batches
        varying = any(is_a(callback, "GradientAccumulationScheduler") for callback in trainer.callbacks)
        if varying or not 0 < steps < math.inf:  # Lightning says inf or -1 if it does not know
            raise ValueError(
                f"total_steps must be given to {type(self).__name__} if the Trainer does not know it (max_epochs="
                f"{trainer.max_epochs}, max_steps={trainer.max_steps}, data without a length, or a GradientAccumulationScheduler), "
                "got None: pass the optimizer steps of the whole training"
            )
        return int(steps)

    def _rest(self, trainer: Any) -> int:
        """The horizon of a schedule that starts now."""
        horizon, done = self._horizon(trainer), trainer.global_step
        if done:
            _check.warn(
                f"the training continues at step {done} from a checkpoint without a state of {type(self).__name__}: the "
                "schedule starts over, for the remaining steps"
            )
        return max(1, horizon - done)

    def _prolong(self, trainer: Any, lr: LearnedLR) -> None:
        """Update the horizon of a schedule that continues, unless `LearnedLR.anneal` has set it."""
        if lr.is_annealing:
            return
        horizon = self._horizon(trainer)
        if horizon > lr.total_steps:
            _check.warn(
                f"the training was made longer, from {lr.total_steps} to {horizon} steps: the schedule follows the new horizon "
                "from here on, and differs from that of a run planned so from the start"
            )
            lr.extend(horizon)
        elif horizon < lr.total_steps:
            _check.warn(
                f"the saved run had total_steps={lr.total_steps}, which is kept instead of {horizon}: a horizon can only grow"
            )
