"""How many steps an optimizer takes between two steps of its schedule. More than one means a loop in the wrong order."""

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class StepCounter:
    """Counts an optimizer's steps on the host, by its hooks. A subclass's step that calls its parent's counts once.

    It holds numbers only, so it can be pickled and copied, and keeps no object alive.
    """

    def __init__(self) -> None:
        self.steps = self._open = 0
        self._told = False

    def watch(self, optimizer: Optimizer) -> None:
        """Begin to count. An optimizer without hooks is not counted."""
        self._open = 0
        with suppress(AttributeError):  # of a class that does not call Optimizer.__init__
            optimizer.register_step_pre_hook(self._enter)
            optimizer.register_step_post_hook(self._leave)

    def take(self) -> int:
        """Steps since the last call."""
        steps, self.steps = self.steps, 0
        return steps

    def excess(self, usual: float) -> int:
        """Steps since the last call if they are more than usual, the first time this happens; else 0."""
        steps = self.take()
        if self._told or steps <= usual:
            return 0
        self._told = True
        return steps

    def trust(self) -> None:
        """Never call any number of steps too many again."""
        self._told = True

    def _enter(self, optimizer: Optimizer, *_: Any) -> None:
        if not torch.compiler.is_compiling():  # a number that changes would compile the step again and again
            self._open += 1

    def _leave(self, optimizer: Optimizer, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._open -= 1
            self.steps += self._open == 0 and any(_moves(group["lr"]) for group in optimizer.param_groups)


def _moves(lr: float | Tensor) -> bool:
    """False for an LR of 0, with which torch.distributed.checkpoint steps to create the state. A device is not asked."""
    return bool(lr) if not isinstance(lr, Tensor) or lr.device.type == "cpu" else True
