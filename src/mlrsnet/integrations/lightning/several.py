"""Several optimizers, in manual optimization: the module steps the schedules, since only it knows which loss is whose."""

from typing import Any

from torch.optim import Optimizer

from mlrsnet._engine.groups import owner
from mlrsnet.integrations.lightning.framework import class_names
from mlrsnet.scheduler import LearnedLR


class OwnSteps:
    """Watches that no optimizer begins without a loss, where a module steps its schedules itself."""

    def __init__(self, trainer: Any) -> None:
        optimizers = [owner(optimizer) for optimizer in trainer.optimizers]
        found = [config.scheduler for config in trainer.lr_scheduler_configs]
        scheduled = [scheduler.optimizer for scheduler in found if isinstance(scheduler, LearnedLR)]
        if len(found) != len(optimizers) or any(all(one is not other for other in scheduled) for one in optimizers):
            raise ValueError(
                f"LossFeed needs configure_optimizers to return a LearnedLR for each of {len(optimizers)} optimizers, got "
                f"{class_names(found)}: return one for each, and in training_step call self.lr_schedulers()[i].step(loss) with the "
                "loss of optimizer i, before its step()"
            )
        self._lrs: list[LearnedLR] = found

    def check(self, optimizer: Optimizer) -> None:
        """Raise if this optimizer is about to take its first step at an LR that no loss has set."""
        for index, lr in enumerate(self._lrs):
            if lr.optimizer is owner(optimizer) and not lr.last_epoch:
                raise RuntimeError(
                    f"every optimizer needs its own loss, and LossFeed cannot know which of several it is, got none for the first "
                    f"step of optimizer {index} ({type(lr.optimizer).__name__}): call self.lr_schedulers()[{index}].step(loss) "
                    "before its step(), in training_step"
                )
