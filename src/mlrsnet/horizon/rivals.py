"""A schedule on held-out tasks, beside the best of a grid of hand-designed ones on each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from mlrsnet.hand_designed import factors
from mlrsnet.horizon.fitness import Fitness
from mlrsnet.horizon.policies import Networks, Table
from mlrsnet.horizon.pool import Pool
from mlrsnet.horizon.tasks import Task
from mlrsnet.schedule import Schedule

GRID = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Peak LRs for plain SGD; other optimizers' are scaled as a learned range would be."""

LARGEST = 1e3
KINDS: dict[str, dict[str, Any]] = {"cosine": {"warmup": 0.05}, "fixed": {}}
CURVE_POINTS = 60
SMALLEST = 0.05
"""Fitnesses are compared down to here: a few validation examples cannot tell losses of 0.04 and 0.001 apart."""


@dataclass(frozen=True)
class Comparison:
    """After so many generations: fitness on each held-out task, and the LR curve on the first of them.

    Of each kind of hand-designed schedule, `best` is the best of the grid on each task, a rival tuned on the task itself,
    and `tuned` the one LR that is best for all of them together.
    """

    number: int
    learned: list[float]
    best: dict[str, list[float]]
    tuned: dict[str, list[float]]
    lrs: list[float]

    def gap(self, kind: str = "cosine", *, tuned: bool = False) -> float:
        """How much higher the learned schedule's fitness is than a rival's: the geometric mean of the ratios, less 1.

        Every task counts alike, a hard one with a high loss no more than an easy one; losses below `SMALLEST` are as good
        as that.
        """
        pairs = zip(self.learned, (self.tuned if tuned else self.best)[kind], strict=True)
        return math.exp(mean(math.log(max(mine, SMALLEST) / max(rival, SMALLEST)) for mine, rival in pairs)) - 1

    def wins(self, kind: str = "cosine", *, tuned: bool = False) -> float:
        """The share of tasks on which it is at least as good."""
        rival = (self.tuned if tuned else self.best)[kind]
        return mean(mine <= other for mine, other in zip(self.learned, rival, strict=True))

    def summary(self) -> dict[str, float]:
        """For the card: the mean fitness, and gaps."""
        found = {"tasks": len(self.learned), "mean fitness": mean(self.learned)}
        for kind in self.best:
            found[f"gap to {kind}, the best LR of each task"] = self.gap(kind)
            found[f"gap to {kind}, one LR for all tasks"] = self.gap(kind, tuned=True)
        return {name: round(value, 4) for name, value in found.items()}


class Rivals:
    """The same tasks for every schedule; the grid is trained once.

    Args:
        tasks: which no schedule was learned from.
        fitness: to compare by.
        device, precision: see `Population`.
        grid: peak LRs.
        kinds: hand-designed schedules, with their options.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        fitness: Fitness,
        device: torch.device,
        precision: str = "fp32",
        grid: Sequence[float] = GRID,
        kinds: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        self.tasks, self.fitness, self.device, self.precision = list(tasks), fitness, device, precision
        self.grid, self.kinds = tuple(grid), KINDS if kinds is None else kinds
        self.pool: Pool[Networks] | None = None
        self.found: dict[str, Tensor] = {}

    def grids(self) -> dict[str, Tensor]:
        """(tasks, LRs) fitness of every kind."""
        if not self.found:
            longest = max(task.total_steps for task in self.tasks)
            peaks = torch.tensor(self.grid, device=self.device)
            pool = Pool(lambda total: Table(peaks.repeat(total // len(peaks)), longest), self.device, self.precision)
            self.found = {kind: self._grid(pool, kind, options) for kind, options in self.kinds.items()}
        return self.found

    def compare(self, number: int, schedule: Schedule) -> Comparison:
        """Train the tasks under a schedule."""
        grids = self.grids()
        if self.pool is None:
            self.pool = Pool(lambda total: Networks(schedule, total, self.device), self.device, self.precision)
        row = parameters_to_vector(schedule.net.parameters()).to(self.device)
        learned, lrs = torch.empty(len(self.tasks)), torch.empty(0)
        for indices, _, trained in self.pool.train(
            self.tasks, 1, self.fitness, lambda policy, indices: policy.set_weights(row.expand(len(indices), -1))
        ):
            learned[indices] = trained.fitness.float().cpu()
            if 0 in indices:
                lrs = trained.lrs[indices.index(0)]
        stride = max(1, len(lrs) // CURVE_POINTS)
        best = {kind: found.min(dim=1).values.tolist() for kind, found in grids.items()}
        tuned = {
            kind: found[:, found.clamp(min=SMALLEST).log().mean(0).argmin()].tolist() for kind, found in grids.items()
        }
        return Comparison(number, _worst(learned).tolist(), best, tuned, lrs[::stride].tolist())

    def _grid(self, pool: Pool[Table], kind: str, options: dict[str, Any]) -> Tensor:
        found = torch.empty(len(self.tasks), len(self.grid))

        def prepare(policy: Table, indices: list[int]) -> None:
            policy.set_factors(factors(kind, self.tasks[indices[0]].total_steps, 1, **options))

        for indices, _, trained in pool.train(self.tasks, len(self.grid), self.fitness, prepare):
            found[indices] = trained.fitness.view(len(indices), -1).float().cpu()
        return _worst(found)


def _worst(fitness: Tensor) -> Tensor:
    """Trainings that diverged count as bad as a loss can be told."""
    return torch.where(torch.isfinite(fitness), fitness, LARGEST)
