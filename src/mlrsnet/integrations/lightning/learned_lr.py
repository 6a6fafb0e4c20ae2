"""`LearnedLRCallback`: a learned schedule with no other change to the user's code."""

import os
from typing import Any

from torch.optim import Optimizer

from mlrsnet.integrations._rehearsal import check_arguments
from mlrsnet.integrations.lightning.resumable import Resumable
from mlrsnet.schedule import DEFAULT, Schedule
from mlrsnet.scheduler import LearnedLR


class LearnedLRCallback(Resumable):
    """Sets the LR of every step with a learned schedule: `Trainer(callbacks=[LearnedLRCallback(...)])`.

    Args:
        schedule: a name, the path of a `.safetensors` file, `hf://owner/name`, or a `Schedule`.
        total_steps: optimizer steps of the whole training; `trainer.estimated_stepping_batches` if None.
        num_classes: classes, or size of the vocabulary. Only some schedules need it, and they say so.
        monitor: the name of a logged validation loss, such as `val_loss`, for `LearnedLR.validate`; lower must be better.
        options: `initial_loss`, `scale`, `min_lr`, `max_lr`, `on_nonfinite` and `process_group` of `LearnedLR`.
    """

    def __init__(
        self,
        schedule: str | os.PathLike[str] | Schedule = DEFAULT,
        total_steps: int | None = None,
        num_classes: int | None = None,
        monitor: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(monitor)
        self.total_steps = total_steps
        self._arguments = {
            "schedule": schedule if isinstance(schedule, Schedule) else Schedule.load(schedule),
            "num_classes": num_classes,
            **options,
        }
        check_arguments(total_steps=total_steps, monitor=monitor, **self._arguments)

    def state_dict(self) -> dict[str, Any]:
        """The schedule's state, saved in every checkpoint."""
        return self.lr.state_dict() if self.lr is not None else self._loaded or {}

    def _prepare(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> LearnedLR:
        self._check_no_scheduler(trainer)
        state = self._loaded or self.state_dict()
        if not state:
            return LearnedLR(optimizer, total_steps=self._rest(trainer), **self._arguments)
        planned = state.get("planned_steps", state.get("total_steps", 1))
        lr = LearnedLR(optimizer, total_steps=planned, **self._arguments)
        lr.load_state_dict(state)
        self._prolong(trainer, lr)
        return lr
