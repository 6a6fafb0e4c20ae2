"""Hand-designed schedules, and the one that looks at the validation loss."""

import math
from typing import Any

import torch
from torch import Tensor

from mlrsnet.baselines import factors
from mlrsnet_lab import checks
from mlrsnet_lab.methods.base import Method, Setting


class ByTable(Method):
    """The LR of every step is known in advance, and looked up in a table.

    On a GPU the table and the position are there too, so that a step copies nothing.
    """

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
        self.move(loss)
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


class ValStrategy(Method):
    """Divide the LR by 4 whenever the validation loss of an epoch is not lower than before (Section 4.1.2)."""

    reads_val_loss = True

    def __init__(self, setting: Setting, *, divisor: float = 4.0) -> None:
        super().__init__(setting)
        self.divisor = checks.positive("divisor", divisor)
        if divisor <= 1:
            raise ValueError(f"divisor must be > 1, got {divisor!r}: the LR is divided by it")
        self.best, self.current = math.inf, setting.lr

    def step(self, loss: Tensor) -> None:
        """Move the weights at the current LR."""
        self.move(loss)

    def end_epoch(self, val_loss: float) -> None:
        """Divide the LR, or remember the new best loss."""
        if val_loss < self.best:
            self.best = val_loss
        else:
            self.current /= self.divisor
            self.set_lr(self.current)

    def state_dict(self) -> dict[str, Any]:
        """The best validation loss and the LR."""
        return {"best": self.best, "current": self.current}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with them."""
        self.best, self.current = state["best"], state["current"]
        self.set_lr(self.current)
