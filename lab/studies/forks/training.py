"""A training that can be stopped, looked at, and forked: both go on with the same batches and random numbers."""

import copy
import dataclasses
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import mlrsnet
from lab.studies.forks.sensors import Watch
from lab.studies.law import fill, fit
from lab.studies.law.families import FAMILIES, Draw, Task
from mlrsnet.default import Default, Size
from mlrsnet.facts import read_facts

Row = dict[str, Any]


class Training:
    """A row under the default with a given r.

    Args:
        task, plan: what is trained.
        size: r.
        watches: whether steps are looked at on the way, as `sensors.Watch` needs.
    """

    def __init__(self, task: Task, plan: fill.Plan, size: float, watches: bool = False) -> None:
        torch.manual_seed(plan.seed)
        self.task, self.plan, self.step = task, plan, 0
        self.model = task.build()
        self.optimizer = fill.OPTIMIZERS[plan.optimizer](self.weights(), lr=0.1, weight_decay=plan.weight_decay)
        law = Default(Size.fixed(size))
        self.learned = mlrsnet.LearnedLR(self.optimizer, law, total_steps=plan.steps, trained=False)
        self.batches = list(fill.batches(plan.steps, plan.examples, plan.batch, plan.seed))
        self.losses: list[float] = []
        self.watch = Watch(self.weights()) if watches else None
        self.is_lost = False
        self._random = torch.get_rng_state()

    def weights(self) -> list[Tensor]:
        """Those that are trained."""
        return [weight for weight in self.model.parameters() if weight.requires_grad]

    @property
    def scale(self) -> float:
        """What every LR is multiplied by."""
        return self.learned._driver.limits.scale

    def rescale(self, factor: float) -> None:
        """Multiply every LR from now on."""
        driver = self.learned._driver
        driver.limits = dataclasses.replace(driver.limits, scale=factor * driver.limits.scale)

    def fork(self, factor: float, watches: bool = False) -> "Training":
        """Another training that has come as far as this one."""
        other = copy.copy(self)
        other.model, other.optimizer, other.learned = copy.deepcopy((self.model, self.optimizer, self.learned))
        other.losses, other.watch = list(self.losses), copy.deepcopy(self.watch) if watches else None
        other.rescale(factor)
        return other

    def run(self, until: int) -> "Training":
        """Train on, to this step."""
        torch.set_rng_state(self._random)
        while self.step < until and not self.is_lost:
            self._one(self.batches[self.step])
        self._random = torch.get_rng_state()
        return self

    def _one(self, index: Tensor) -> None:
        self.optimizer.zero_grad()
        loss = self.task.loss(self.model, index)
        value = float(loss.detach())
        if not math.isfinite(value) or value > fill.WORST:
            self.is_lost = True
            return
        self.losses.append(value)
        loss.backward()
        weights = self.weights()
        if self.watch is not None:
            self.watch.see(weights)
        if self.plan.clip:
            torch.nn.utils.clip_grad_norm_(weights, self.plan.clip)
        self.learned.step(loss)
        self.optimizer.step()
        self.step += 1
        if self.watch is not None:
            self.watch.moved(weights, self.optimizer.param_groups[0])

    def judged(self) -> tuple[float, float]:
        """The error and the loss of the end, on examples that are held out."""
        self.run(self.plan.steps)
        if self.is_lost:
            return math.inf, math.inf
        self.model.eval()
        with torch.no_grad():
            error, loss = self.task.judge(self.model)
        return tuple(one if math.isfinite(one) else math.inf for one in (error, loss))  # type: ignore[return-value]


def drawn(number: int, folder: Path) -> tuple[Row, Task, fill.Plan]:
    """What is known of a row before its first step, with r, and what trains it."""
    torch.set_num_threads(1)
    name, draw = tuple(FAMILIES)[number % len(FAMILIES)], Draw(number)
    task = FAMILIES[name](draw, folder)
    plan = fill.plan_of(draw, task)
    model = task.build()
    facts = read_facts([weight for weight in model.parameters() if weight.requires_grad])
    row = {
        "number": number,
        "family": name,
        **dataclasses.asdict(plan),
        **{key: getattr(facts, key) for key in ("matrices", "parameters", "is_trained")},
        "depth": 1 if facts.has_norms else facts.depth,
        "all_parameters": sum(weight.numel() for weight in model.parameters()),
    }
    return row | {"size": size_of(row)}, task, plan


def size_of(row: Row) -> float:
    """r, by the law that the first rows of the table led to."""
    return math.exp(fit.first(row))
