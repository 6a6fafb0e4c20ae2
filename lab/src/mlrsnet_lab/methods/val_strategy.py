"""Val strategy (Section 4.1.2): divide the LR by 4 whenever the validation loss stops decreasing."""

import math
from typing import Any

from torch import Tensor

from mlrsnet_lab import checks
from mlrsnet_lab.methods.base import Method, Setting


class ValStrategy(Method):
    """Checks the validation loss after every epoch."""

    reads_val_loss = True

    def __init__(self, setting: Setting, *, divisor: float = 4.0) -> None:
        super().__init__(setting)
        self.divisor = checks.positive("divisor", divisor)
        if divisor <= 1:
            raise ValueError(f"divisor must be > 1, got {divisor!r}: the LR is divided by it")
        self.best, self.current = math.inf, setting.lr

    def step(self, loss: Tensor) -> None:
        """Move the weights at the current LR."""
        self.optimizer.step()

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
