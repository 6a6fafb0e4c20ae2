"""alpha_t as a function of phi, unrolled over the last steps of the network's memory."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mlrsnet._driver import Driver
from mlrsnet.algorithm2 import NetState, advance
from mlrsnet.law import Seen
from mlrsnet.nets import ScheduleNet, predict
from mlrsnet.ops import DEVICE, leaves, rebuilt
from mlrsnet.schedule import Schedule


class Told(NamedTuple):
    """What a network was told at a step, and its state before it: tensors on the CPU, wherever the LRs live."""

    loss: Tensor
    scale: Tensor
    state: NetState


class Unroll:
    """Remembers the last `bptt - 1` steps, through whose memory a gradient goes back. The paper has bptt = 1."""

    def __init__(self, net: ScheduleNet, law: Schedule, bptt: int) -> None:
        self.net, self.law = net, law
        self.past: deque[Told] = deque(maxlen=bptt - 1)

    def remember(self, driver: Driver) -> None:
        """Keep the step that is open."""
        if self.past.maxlen:
            self.past.append(_now(driver))

    @torch.enable_grad()
    def alpha(self, driver: Driver) -> tuple[Tensor, NetState]:
        """alpha_t = A(f_t, theta_t; phi) of the step that is open, and the state after it, with gradients for phi."""

        def network(scaled: Tensor, progress: Tensor, phase: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
            return predict(self.net, scaled, progress, memory)

        steps, gamma, everything = [*self.past, _now(driver)], self.law.card.gamma, (-math.inf, math.inf)
        state = steps[0].state
        with torch.autocast("cpu", enabled=False):
            for told in steps:
                seen = Seen(told.loss, scale=told.scale)
                state = advance(state, seen, driver.plan, network, self.net, gamma, 1, everything, DEVICE)
        if not state.lr.isfinite():
            self.law.check_loss(steps[-1].loss.item(), driver.facts.num_classes)
        return driver.limits.applied(state.lr, state.lr, DEVICE), state

    def state(self) -> list[list[Tensor]]:
        """The steps as lists of tensors."""
        return [list(leaves(told)) for told in self.past]

    def load(self, saved: Iterable[Iterable[Tensor]], driver: Driver) -> None:
        """Continue from what `state` returned."""
        like = Told(torch.empty(0), torch.empty(0), driver.numbers.state)
        self.past.clear()
        self.past.extend(rebuilt(like, iter(values)) for values in saved)


def _now(driver: Driver) -> Told:
    numbers = driver.numbers
    state = rebuilt(numbers.state, map(_on_cpu, leaves(numbers.state)))
    return Told(_on_cpu(numbers.loss), _on_cpu(numbers.scale), state)


def _on_cpu(value: Any) -> Tensor:
    """A number or an array, as a tensor of its own."""
    return value.detach().cpu().clone() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
