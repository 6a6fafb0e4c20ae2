"""A schedule on held-out tasks, beside a grid of hand-designed ones on the same tasks."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from mlrsnet.baselines.hand_designed import factors
from mlrsnet.horizon.fitness import Fitness, find_fitness
from mlrsnet.horizon.policies import Networks, Table
from mlrsnet.horizon.pool import Pool
from mlrsnet.horizon.tasks import Task
from mlrsnet.schedule import Schedule

GRID = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Peak LRs for plain SGD; other optimizers' are scaled as a learned range would be."""

KINDS: dict[str, dict[str, Any]] = {"cosine": {"warmup": 0.05}, "linear": {"warmup": 0.05}, "fixed": {}}
CURVE_POINTS = 60


@dataclass(frozen=True)
class Comparison:
    """After so many generations: fitness on each held-out task, and the LR curve on the first of them.

    Of each kind of hand-designed schedule, `tuned` is the LR of the grid that is best for these tasks on average, chosen on
    the very tasks it is reported on, and `oracle` the best LR of each task. Both flatter the rival.
    """

    number: int
    learned: list[float]
    tuned: dict[str, list[float]]
    oracle: dict[str, list[float]]
    lrs: list[float]

    def gap(self, kind: str = "cosine", *, oracle: bool = False) -> float:
        """How much higher the learned schedule's mean fitness is than a rival's, in parts of the rival's."""
        rival = mean(self._rival(kind, oracle))
        return (mean(self.learned) - rival) / abs(rival) if rival and math.isfinite(rival) else math.nan

    def difference(self, kind: str = "cosine", *, oracle: bool = False) -> tuple[float, float]:
        """Learned less rival, the mean over the tasks and its standard error."""
        return paired(self.learned, self._rival(kind, oracle))

    def wins(self, kind: str = "cosine", *, oracle: bool = False) -> float:
        """The share of tasks on which it is at least as good."""
        return mean(mine <= other for mine, other in zip(self.learned, self._rival(kind, oracle), strict=True))

    def summary(self) -> dict[str, Any]:
        """For the card: the mean fitness, and gaps."""
        found: dict[str, Any] = {"tasks": len(self.learned), "mean fitness": _plain(mean(self.learned))}
        for kind in self.tuned:
            found[f"gap to {kind}, one LR chosen on these tasks"] = _plain(self.gap(kind))
            found[f"gap to {kind}, the best LR of each task (oracle)"] = _plain(self.gap(kind, oracle=True))
            found[f"share of tasks at least as good as {kind}, one LR"] = _plain(self.wins(kind))
        return found

    def _rival(self, kind: str, oracle: bool) -> list[float]:
        return (self.oracle if oracle else self.tuned)[kind]


def paired(mine: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Mine less the others', task by task: the mean and its standard error."""
    each = [one - other for one, other in zip(mine, others, strict=True)]
    known = len(each) > 1 and all(map(math.isfinite, each))
    return mean(each), stdev(each) / math.sqrt(len(each)) if known else math.nan


def log_gaps(
    fitness: Sequence[float], best: Sequence[float], *, near_0: float = 0.05, largest: float = 9.0
) -> list[float]:
    """log((f + near_0) / (best + near_0)) of every task, f at most `largest`: tasks that end near 0 do not outvote the others.

    >>> [round(gap, 3) for gap in log_gaps([1.0, 0.0, math.inf], [0.5, 0.0, 1.0])]
    [0.647, 0.0, 2.154]
    """
    return [
        math.log((min(mine, largest) + near_0) / (other + near_0)) for mine, other in zip(fitness, best, strict=True)
    ]


class Rivals:
    """The same tasks for every schedule; the grid is trained once.

    Args:
        tasks: which no schedule was learned from.
        fitness: to compare by; a name or a function.
        device, precision, capture: see `Population`.
        grid: peak LRs.
        kinds: hand-designed schedules, with their options.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        fitness: str | Fitness = "calibrated",
        device: torch.device | str = "cpu",
        precision: str = "fp32",
        grid: Sequence[float] = GRID,
        kinds: dict[str, dict[str, Any]] | None = None,
        *,
        capture: bool = True,
    ) -> None:
        self.tasks, self.fitness, self.device = list(tasks), find_fitness(fitness), torch.device(device)
        self.precision, self.capture = precision, capture
        self.grid, self.kinds = tuple(grid), KINDS if kinds is None else kinds
        self.pool: Pool[Networks] | None = None
        self.rule = ""  # of the schedules that the pool is for
        self.found: dict[str, Tensor] = {}

    def grids(self) -> dict[str, Tensor]:
        """(tasks, LRs) fitness of every kind; a training that diverged counts as infinite."""
        if not self.found and self.kinds:
            fitness = self._train_grid()
            self.found = dict(zip(self.kinds, fitness.unbind(1), strict=True))
        return self.found

    def compare(self, number: int, schedule: Schedule) -> Comparison:
        """Train the tasks under a schedule."""
        grids = self.grids()
        row = parameters_to_vector(schedule.net.parameters()).to(self.device)
        learned, lrs = torch.empty(len(self.tasks)), torch.empty(0)
        for indices, _, trained in self._pool(schedule).train(
            self.tasks, 1, self.fitness, lambda policy, indices: policy.set_weights(row.expand(len(indices), -1))
        ):
            learned[indices] = trained.fitness.float().cpu()
            if 0 in indices:
                lrs = trained.lrs[indices.index(0)]
        stride = max(1, len(lrs) // CURVE_POINTS)
        tuned = {kind: found[:, found.mean(dim=0).argmin()].tolist() for kind, found in grids.items()}
        oracle = {kind: found.min(dim=1).values.tolist() for kind, found in grids.items()}
        return Comparison(number, _worst(learned).tolist(), tuned, oracle, lrs[::stride].tolist())

    def describe(self) -> dict[str, Any]:
        """The grid and what it came to, for a record."""
        chosen = {kind: self.grid[int(found.mean(dim=0).argmin())] for kind, found in self.grids().items()}
        fitness = {kind: found.tolist() for kind, found in self.grids().items()}
        return {"grid": self.grid, "kinds": self.kinds, "tuned_lr": chosen, "fitness": fitness}

    def _pool(self, schedule: Schedule) -> Pool[Networks]:
        """Populations for schedules that differ in their weights only."""
        rule = json.dumps([schedule.net.config(), schedule.card.to_dict()["gamma"]], sort_keys=True)
        if self.pool is None or rule != self.rule:
            self.rule = rule
            self.pool = Pool(
                lambda total: Networks(schedule, total, self.device), self.device, self.precision, self.capture
            )
        return self.pool

    def _train_grid(self) -> Tensor:
        """(tasks, kinds, LRs), all kinds side by side."""
        longest, peaks = max(task.total_steps for task in self.tasks), torch.tensor(self.grid, device=self.device)
        members = len(self.kinds) * len(peaks)
        pool = Pool(
            lambda total: Table(peaks.repeat(total // len(peaks)), longest), self.device, self.precision, self.capture
        )
        found = torch.empty(len(self.tasks), len(self.kinds), len(self.grid))

        def prepare(policy: Table, indices: list[int]) -> None:
            steps = self.tasks[indices[0]].total_steps
            rows = torch.tensor([factors(kind, steps, 1, **options) for kind, options in self.kinds.items()])
            policy.set_factors(rows.repeat_interleave(len(peaks), 0).repeat(len(indices), 1))

        for indices, _, trained in pool.train(self.tasks, members, self.fitness, prepare):
            found[indices] = trained.fitness.view(len(indices), *found.shape[1:]).float().cpu()
        return _worst(found)


def _worst(fitness: Tensor) -> Tensor:
    return torch.where(torch.isfinite(fitness), fitness, torch.inf)


def _plain(value: float) -> float | str:
    return round(value, 4) if math.isfinite(value) else str(value)
