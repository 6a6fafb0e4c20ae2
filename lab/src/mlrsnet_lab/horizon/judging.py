"""What a generation keeps of its trainings: little, so that it can come from another process."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from mlrsnet_lab.horizon.comparison import Comparison
from mlrsnet_lab.horizon.policies import Networks
from mlrsnet_lab.horizon.pool import TaskGroup

if TYPE_CHECKING:
    from mlrsnet_lab.horizon.trainer import HorizonTrainer

MOST_LOSSES = 10_000
"""Quantiles of the losses of a group are taken over about this many of them."""

Range = tuple[float, float]
NO_LOSSES: Range = (math.inf, -math.inf)


@dataclass(frozen=True)
class Judged:
    """Tasks of a generation that trained side by side.

    indices: of the tasks. fitness: (tasks, members). loss_range: of the losses as the networks read them.
    """

    indices: list[int]
    fitness: Tensor
    loss_range: Range


class Helpers(Protocol):
    """Others that train for a `HorizonTrainer`; set its `helpers`."""

    def judge(self, trainer: "HorizonTrainer") -> Iterable[Judged]:
        """Train all `groups()` of the trainer's next generation."""

    def compare(self, trainer: "HorizonTrainer") -> Comparison:
        """Compare the trainer's schedule on its held-out tasks."""


def judged(group: TaskGroup[Networks]) -> Judged:
    """What is kept of a group that has finished."""
    trained = group.trained
    is_better_half = trained.fitness <= trained.fitness.nanmedian()
    losses = (trained.losses / group.policy.divisors().unsqueeze(1))[is_better_half]
    return Judged(group.indices, trained.fitness.view(len(group.indices), -1).cpu(), range_of(losses))


def range_of(losses: Tensor) -> Range:
    """Without the most extreme losses.

    >>> range_of(torch.tensor([math.nan]))
    (inf, -inf)
    """
    thinned = losses.flatten()[:: max(1, losses.numel() // MOST_LOSSES)]
    finite = thinned[torch.isfinite(thinned)].cpu()
    if not len(finite):
        return NO_LOSSES
    low, high = finite.quantile(torch.tensor([0.001, 0.99], dtype=finite.dtype)).tolist()
    return low, high


def widened(one: Range, other: Range) -> Range:
    """The range of both."""
    return min(one[0], other[0]), max(one[1], other[1])
