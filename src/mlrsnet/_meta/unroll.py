"""alpha_t as a function of phi, unrolled over the last steps of the network's memory."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mlrsnet._engine.contract import Backend, Moment, Rule
from mlrsnet.nets import ScheduleNet, predict


class PastStep(NamedTuple):
    """A step to back-propagate through: its loss, its progress, and the memory before it."""

    loss: float | Tensor
    progress: float | Tensor
    memory: Tensor


class Unroll:
    """The steps before the current one that a gradient goes back through: the last `bptt - 1`.

    The paper has bptt = 1: no step before the current one, and its memory counts as a constant.
    """

    def __init__(self, bptt: int, steps: Iterable[tuple[Any, Any, Any]] = ()) -> None:
        self.steps = deque((PastStep(*step) for step in steps), maxlen=bptt - 1)

    def remember(self, loss: float | Tensor, backend: Backend) -> None:
        """Add a step before the backend takes it."""
        if self.steps.maxlen:
            own = loss.clone() if isinstance(loss, Tensor) else loss
            self.steps.append(PastStep(own, backend.progress(), backend.copy_memory()))

    def alpha(self, net: ScheduleNet, loss: float, moment: Moment, rule: Rule) -> tuple[Tensor, Tensor]:
        """alpha_t = A(f_t, theta_t; phi) and theta_{t+1}, both with gradients for phi."""
        past = [step for step in self.steps if math.isfinite(float(step.loss))]
        memory = past[0].memory.to(moment.memory) if past else moment.memory
        for step in (*past, PastStep(loss, moment.progress, memory)):
            scaled = torch.full((), float(step.loss) / moment.divisor, dtype=memory.dtype, device=memory.device)
            with torch.autocast("cpu", enabled=False):
                factor, memory = predict(net, scaled, float(step.progress), memory)
        return torch.clamp(moment.scale * factor, rule.min_lr, rule.max_lr), memory

    def state(self) -> list[tuple[float, float, Tensor]]:
        """The steps as plain numbers and CPU tensors."""
        return [(float(step.loss), float(step.progress), step.memory.cpu()) for step in self.steps]
