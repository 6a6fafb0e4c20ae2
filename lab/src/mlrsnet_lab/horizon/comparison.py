"""A schedule compared with hand-designed ones, on held-out tasks."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from mlrsnet.baselines import factors
from mlrsnet.schedule import Schedule
from mlrsnet_lab.horizon.compute import Compute
from mlrsnet_lab.horizon.fitness import Fitness, find_fitness
from mlrsnet_lab.horizon.policies import Factors, Networks
from mlrsnet_lab.horizon.pool import Pool
from mlrsnet_lab.horizon.sampler import Sampler
from mlrsnet_lab.horizon.seeds import seed_from
from mlrsnet_lab.horizon.task import Task

GRID = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Peak LRs for plain SGD. For other optimizers they are scaled as the range of a learned schedule is."""

KINDS: dict[str, dict[str, Any]] = {"cosine": {"warmup": 0.05}, "linear": {"warmup": 0.05}, "fixed": {}}
"""The hand-designed schedules to compare with, and their options."""

CURVE_POINTS = 60
"""About this many points of an LR curve are kept."""

TASKS_PER_DRAW = 8
"""Held-out tasks are drawn this many at a time. One draw of a `TaskSampler` shares data, model and optimizer, so several
draws cover more of them."""


@dataclass(frozen=True)
class Comparison:
    """A schedule after a number of generations: its fitness on each held-out task, and its LR curve on the first task.

    For each kind of hand-designed schedule, `tuned` is the fitness at the LR that is best on average over these tasks, and
    `oracle` the fitness at the best LR of each task. Both LRs were chosen on the tasks they are reported on, which favours
    the hand-designed schedules.
    """

    number: int
    learned: list[float]
    tuned: dict[str, list[float]]
    oracle: dict[str, list[float]]
    lrs: list[float]

    def gap(self, kind: str = "cosine", *, oracle: bool = False) -> float:
        """(learned - hand-designed) / |hand-designed|, of the mean fitness; negative if the learned schedule is better."""
        other = mean(self._hand_designed(kind, oracle))
        return (mean(self.learned) - other) / abs(other) if other and math.isfinite(other) else math.nan

    def difference(self, kind: str = "cosine", *, oracle: bool = False) -> tuple[float, float]:
        """Learned minus hand-designed: the mean over the tasks, and its standard error."""
        return paired(self.learned, self._hand_designed(kind, oracle))

    def wins(self, kind: str = "cosine", *, oracle: bool = False) -> float:
        """The share of tasks on which the learned schedule is at least as good."""
        return mean(mine <= other for mine, other in zip(self.learned, self._hand_designed(kind, oracle), strict=True))

    def summary(self) -> dict[str, Any]:
        """Mean fitness, gaps and wins, for the card."""
        found: dict[str, Any] = {"tasks": len(self.learned), "mean fitness": _rounded(mean(self.learned))}
        for kind in self.tuned:
            found[f"gap to {kind}, one LR chosen on these tasks"] = _rounded(self.gap(kind))
            found[f"gap to {kind}, the best LR of each task (oracle)"] = _rounded(self.gap(kind, oracle=True))
            found[f"share of tasks at least as good as {kind}, one LR"] = _rounded(self.wins(kind))
        return found

    def _hand_designed(self, kind: str, oracle: bool) -> list[float]:
        return (self.oracle if oracle else self.tuned)[kind]


def paired(mine: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """The mean of the differences mine - other, and its standard error.

    >>> paired([1.0, 2.0], [1.0, 3.0])
    (-0.5, 0.5)
    """
    each = [one - other for one, other in zip(mine, others, strict=True)]
    is_known = len(each) > 1 and all(map(math.isfinite, each))
    return mean(each), stdev(each) / math.sqrt(len(each)) if is_known else math.nan


def log_gaps(
    fitness: Sequence[float], best: Sequence[float], *, near_0: float = 0.05, largest: float = 9.0
) -> list[float]:
    """log((f + near_0) / (best + near_0)) for each task, with f at most `largest`.

    `near_0` keeps tasks whose loss ends near 0 from dominating the mean.

    >>> [round(gap, 3) for gap in log_gaps([1.0, 0.0, math.inf], [0.5, 0.0, 1.0])]
    [0.647, 0.0, 2.154]
    """
    return [
        math.log((min(mine, largest) + near_0) / (other + near_0)) for mine, other in zip(fitness, best, strict=True)
    ]


def hold_out(tasks: Sampler, count: int) -> list[Task]:
    """Tasks that no generation trains on, the same for every trainer with this sampler."""
    return [
        task
        for first in range(0, count, TASKS_PER_DRAW)
        for task in tasks.sample(seed_from("held out", first), min(TASKS_PER_DRAW, count - first))
    ]


class HeldOut:
    """Held-out tasks, and hand-designed schedules trained on them at every LR of a grid.

    The grid is trained once, when it is first needed.

    Args:
        tasks: that no schedule was learned from.
        fitness: to compare by; a name or a function.
        run: where and how they train.
        grid: peak LRs.
        kinds: hand-designed schedules, with their options.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        fitness: str | Fitness = "calibrated",
        run: Compute | None = None,
        grid: Sequence[float] = GRID,
        kinds: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        self.tasks, self.fitness, self.run = list(tasks), find_fitness(fitness), run or Compute()
        self.grid, self.kinds = tuple(grid), KINDS if kinds is None else kinds
        self.pool: Pool[Networks] | None = None
        self.pool_key = ""
        self.grid_fitness: dict[str, Tensor] = {}

    def grids(self) -> dict[str, Tensor]:
        """(tasks, LRs) fitness of every kind; infinite where the training diverged."""
        if not self.grid_fitness and self.kinds:
            self.grid_fitness = dict(zip(self.kinds, self._train_grid().unbind(1), strict=True))
        return self.grid_fitness

    def compare(self, number: int, schedule: Schedule) -> Comparison:
        """Train the tasks under a schedule, which has been learned for `number` generations."""
        grids = self.grids()
        weights = parameters_to_vector(schedule.net.parameters()).detach().unsqueeze(0)
        learned, lrs = torch.empty(len(self.tasks), dtype=self.run.dtype), torch.empty(0)
        for group in self._pool(schedule).train(self.tasks, [weights] * len(self.tasks), self.fitness):
            learned[group.indices] = group.trained.fitness.to(learned)
            if 0 in group.indices:
                lrs = group.trained.lrs[group.indices.index(0)]
        stride = max(1, len(lrs) // CURVE_POINTS)
        tuned = {kind: found[:, found.mean(dim=0).argmin()].tolist() for kind, found in grids.items()}
        oracle = {kind: found.min(dim=1).values.tolist() for kind, found in grids.items()}
        return Comparison(number, _worst(learned).tolist(), tuned, oracle, lrs[::stride].tolist())

    def describe(self) -> dict[str, Any]:
        """The grid and its fitness, for a record."""
        chosen = {kind: self.grid[int(found.mean(dim=0).argmin())] for kind, found in self.grids().items()}
        fitness = {kind: found.tolist() for kind, found in self.grids().items()}
        return {"grid": self.grid, "kinds": self.kinds, "tuned_lr": chosen, "fitness": fitness}

    def _pool(self, schedule: Schedule) -> Pool[Networks]:
        """Populations for this schedule, kept for schedules that differ from it in their weights only."""
        key = json.dumps([schedule.net.config(), schedule.card.to_dict()["gamma"]], sort_keys=True)
        if self.pool is None or key != self.pool_key:

            def make(trainings: int) -> Networks:
                return Networks(schedule, trainings, self.run.device, self.run.dtype)

            self.pool, self.pool_key = Pool(make, self.run), key
        return self.pool

    def _train_grid(self) -> Tensor:
        """(tasks, kinds, LRs) fitness, all kinds and LRs of a task side by side."""
        peaks = torch.tensor(self.grid, dtype=self.run.dtype, device=self.run.device)
        longest = max(task.total_steps for task in self.tasks)
        pool = Pool(lambda trainings: Factors(peaks.repeat(trainings // len(peaks)), longest), self.run)
        found = torch.empty(len(self.tasks), len(self.kinds), len(self.grid), dtype=self.run.dtype)
        for group in pool.train(self.tasks, [self._factors(task) for task in self.tasks], self.fitness):
            found[group.indices] = group.trained.fitness.view(len(group.indices), *found.shape[1:]).to(found)
        return _worst(found)

    def _factors(self, task: Task) -> Tensor:
        """(kinds * LRs, steps)."""
        rows = [factors(kind, task.total_steps, 1, **options) for kind, options in self.kinds.items()]
        return torch.tensor(rows, dtype=self.run.dtype).repeat_interleave(len(self.grid), 0)


def _worst(fitness: Tensor) -> Tensor:
    """Infinite where it is not finite."""
    return torch.where(torch.isfinite(fitness), fitness, torch.inf)


def _rounded(value: float) -> float | str:
    return round(value, 4) if math.isfinite(value) else str(value)
