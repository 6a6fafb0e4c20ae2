"""Hand-designed schedules: the LR of every step is known in advance."""

from typing import Any

import torch
from torch import Tensor

from mlrsnet.baselines import factors
from mlrsnet_lab.methods.base import Method, Setting


class ByTable(Method):
    """Looks the LR up in a table. On a GPU the table and the position are there too, so that a step copies nothing."""

    def __init__(self, setting: Setting, name: str, **options: Any) -> None:
        super().__init__(setting)
        table = factors(name, setting.total_steps, setting.steps_per_epoch, **options)
        self.table = [setting.lr * factor for factor in table]
        self.count = 0
        self.on_gpu = isinstance(self.optimizer.param_groups[0]["lr"], Tensor)
        if self.on_gpu:
            self.lrs = torch.tensor(self.table, dtype=torch.float32, device=self.device)
            self.place = torch.zeros(1, dtype=torch.int64, device=self.device)

    def step(self, loss: Tensor) -> None:
        """Set the next LR, then move the weights."""
        if self.on_gpu:
            for group in self.optimizer.param_groups:
                group["lr"].copy_(self.lrs.index_select(0, self.place).squeeze(0))
            self.place += 1
        else:
            self.set_lr(self.table[self.count])
        self.optimizer.step()
        self.count += 1

    def replayed(self) -> None:
        """Count a replayed step on the host."""
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        """The position in the table."""
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a position."""
        self.count = state["count"]
        if self.on_gpu:
            self.place.fill_(self.count)
