"""One ratio for all matrices, or one for each: every matrix has its own LearnedLR, with the vectors that come after it."""

import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import mlrsnet
from lab.studies.forks.training import Row, drawn
from lab.studies.law import fill
from lab.studies.law.families import Task
from mlrsnet.default import Default, Size

SCALES = (0.5, 1.0, 2.0)


def parts(model: nn.Module) -> list[list[Tensor]]:
    """A matrix and the vectors up to the next one; those before the first are with it.

    >>> [len(part) for part in parts(nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)))]
    [6, 2]
    """
    found: list[list[Tensor]] = []
    early: list[Tensor] = []
    for weight in model.parameters():
        if weight.requires_grad and weight.ndim >= 2:
            found.append([weight])
        elif weight.requires_grad:
            (found[-1] if found else early).append(weight)
    return [[*early, *found[0]], *found[1:]] if found else [early]


def train(task: Task, plan: fill.Plan, size: float, apart: bool) -> tuple[float, float]:
    """The error and the loss at the end."""
    torch.manual_seed(plan.seed)
    model = task.build()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizers, all_learned = [], []
    for part in parts(model) if apart else [weights]:
        optimizer = fill.OPTIMIZERS[plan.optimizer](part, lr=0.1, weight_decay=plan.weight_decay)
        law = Default(Size.fixed(size))
        all_learned.append(mlrsnet.LearnedLR(optimizer, law, total_steps=plan.steps, trained=False))
        optimizers.append(optimizer)
    for index in fill.batches(plan.steps, plan.examples, plan.batch, plan.seed):
        model.zero_grad()
        loss = task.loss(model, index)
        value = float(loss.detach())
        if not math.isfinite(value) or value > fill.WORST:
            return math.inf, math.inf
        loss.backward()
        if plan.clip:
            torch.nn.utils.clip_grad_norm_(weights, plan.clip)
        for learned, optimizer in zip(all_learned, optimizers, strict=True):
            learned.step(loss)
            optimizer.step()
    model.eval()
    with torch.no_grad():
        error, loss_ = task.judge(model)
    return error if math.isfinite(error) else math.inf, loss_ if math.isfinite(loss_) else math.inf


def layers_row(number: int, folder: Path) -> Row:
    """A row under both, at half of r, r, and twice r."""
    begin = time.perf_counter()
    row, task, plan = drawn(number, folder)
    ends: dict[str, Any] = {
        kind: {str(scale): train(task, plan, scale * row["size"], kind == "each") for scale in SCALES}
        for kind in ("all", "each")
    }
    return row | {"ends": ends, "seconds": time.perf_counter() - begin}
