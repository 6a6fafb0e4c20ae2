"""One training, from the first step to its record."""

import math
import time
from collections.abc import Iterable
from contextlib import nullcontext
from itertools import cycle
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from lab.studies.judge.methods import METHODS, weights
from lab.studies.judge.task import Task
from lab.studies.law.fill import WORST, batches
from mlrsnet_lab.averaging import averages, evaluation_weights

LAST = 0.05
"""The share of a training whose mean loss is kept."""


def train(task: Task, method: str, seed: int, multiple: float | None = None) -> dict[str, Any]:
    """Errors and losses at the end, None where it diverged; what an untrained network has; the largest LR."""
    begin, plan = time.perf_counter(), task.plan
    torch.manual_seed(seed)
    model = task.build()
    model.eval()
    untrained = task.judge(model, "test")[0]
    model.train()
    driver = METHODS[method](model, plan, multiple)
    losses, peak = [], 0.0
    reads_loss = getattr(driver.optimizer, "reads_loss", False)
    if averages(driver.optimizer):
        driver.optimizer.train()  # type: ignore[attr-defined]
    for index in batches(plan.steps, plan.examples, plan.batch, seed):
        driver.optimizer.zero_grad()
        loss = task.loss(model, index)
        losses.append(float(loss.detach()))
        if not losses[-1] <= WORST:
            break
        loss.backward()
        if limit := plan.clip or driver.clip:
            nn.utils.clip_grad_norm_(weights(model), limit)
        driver.before(loss.detach())
        driver.optimizer.step(*([lambda: loss.detach()] if reads_loss else []))  # noqa: B023
        peak = max(peak, largest(driver.optimizer))
        driver.after()
    found = ended(task, model, driver.optimizer, seed) if losses[-1] <= WORST else [(math.inf, math.inf)] * 2
    last = losses[-max(1, round(LAST * plan.steps)) :]
    numbers = {
        "validation": found[0][0],
        "test": found[1][0],
        "validation_loss": found[0][1],
        "test_loss": found[1][1],
        "training_loss": sum(last) / len(last),
        "untrained": untrained,
        "peak_lr": peak,
    }
    kept = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    return {**kept, "epochs": plan.epochs, "seconds": round(time.perf_counter() - begin, 2)}


def ended(task: Task, model: nn.Module, optimizer: Optimizer, seed: int) -> list[tuple[float, float]]:
    """On validation and test data, with the weights that the optimizer wants to be judged by."""
    plan = task.plan
    again: Iterable[Any] = cycle(batches(plan.steps, plan.examples, plan.batch, seed))
    draw = iter(again)
    judged = (
        evaluation_weights(optimizer, model, lambda: task.loss(model, next(draw)))
        if averages(optimizer)
        else nullcontext()
    )
    with judged:
        model.eval()
        return [task.judge(model, part) for part in ("validation", "test")]


def largest(optimizer: Optimizer) -> float:
    """The largest LR of its groups, times the estimate of those that have one."""
    return max(float(group["lr"]) * float(group.get("d", 1.0)) for group in optimizer.param_groups)
