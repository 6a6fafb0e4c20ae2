"""How far the weights of many trainings move in a step: what `sensors.Steps` sees of one training, measured at all entries."""

import math
from typing import Any

import torch
from torch import Tensor

from mlrsnet import sensors
from mlrsnet.ops import DEVICE
from mlrsnet_lab.horizon.rows import Rows
from mlrsnet_lab.horizon.updates import Update


class StackedSteps:
    """x, now and guess of `law.Seen`, a number for each training. Buffers are never replaced: a captured step refers to them.

    Args:
        rows: the weights.
        update: moves them.
    """

    def __init__(self, rows: Rows, update: Update) -> None:
        self.rows, self.is_gradient = rows, update.is_gradient
        self.counts, self.floors = self._numbers(sensors.count), self._numbers(sensors.shortest_length)
        self.n = sum(math.prod(shape) for shape in rows.shapes)
        self.x, self.now, self.guess = self.counts.new_zeros(3, len(rows.weights))
        self.shrink = self.counts.new_ones(len(rows.weights), len(rows.shapes))
        self._before = torch.zeros_like(rows.weights)

    def begin(self) -> None:
        """Nothing was measured yet. What is too long now is shrunk from now on."""
        shrink = sensors.LONGEST * self.floors / self._lengths(self.rows.weights)
        self.shrink.copy_(shrink.nan_to_num(nan=1.0).clamp(max=1.0))
        self.x.fill_(math.nan)

    def before(self, gradients: Tensor) -> None:
        """A step with these gradients (members, size) begins."""
        self._before.copy_(self.rows.weights)
        plain = torch.maximum(self._lengths(self._before) * self.shrink, self.floors)
        self.lengths, pulled = plain * self.counts, self._lengths(gradients)
        self.guess.copy_(sensors.first_square(pulled, plain, self.n, DEVICE))
        if self.is_gradient:
            self.now.copy_(sensors.relative_square(pulled * self.counts, self.lengths))

    def after(self, lrs: Tensor) -> None:
        """The step was taken, at these LRs (members,)."""
        moved = self._lengths(self.rows.weights - self._before)
        self.x.copy_(sensors.relative_square(moved * self.counts, self.lengths) / lrs.square())

    def _lengths(self, values: Tensor) -> Tensor:
        return self.rows.lengths(values).to(self.counts)

    def _numbers(self, of_shape: Any) -> Tensor:
        device = self.rows.weights.device
        return torch.tensor(list(map(of_shape, self.rows.shapes)), dtype=sensors.wide(device), device=device)
