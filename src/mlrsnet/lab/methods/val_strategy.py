"""Val strategy (Section 4.1.2): the LR is divided by 4 whenever the validation loss stops decreasing."""

import math
from typing import Any

from torch import Tensor

from mlrsnet import _check
from mlrsnet.lab.methods.base import Method, Setting


class ValStrategy(Method):
    """Looks at the validation loss after every epoch."""

    reads_val_loss = True

    def __init__(self, setting: Setting, *, divisor: float = 4.0) -> None:
        super().__init__(setting)
        self.divisor = _check.positive("divisor", divisor)
        if divisor <= 1:
            raise ValueError(f"divisor must be > 1, got {divisor!r}: the LR is divided by it")
        self.best, self.current = math.inf, setting.lr

    def step(self, loss: Tensor) -> None:
        """The optimizer's, at the LR in force."""
        self.optimizer.step()

    def end_epoch(self, val_loss: float) -> None:
        """Divide, or remember the new best."""
        if val_loss < self.best:
            self.best = val_loss
        else:
            self.current /= self.divisor
            self.set_lr(self.current)

    def state_dict(self) -> dict[str, Any]:
        """The best validation loss and the LR."""
        return {"best": self.best, "current": self.current}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with them."""
        self.best, self.current = state["best"], state["current"]
        self.set_lr(self.current)
