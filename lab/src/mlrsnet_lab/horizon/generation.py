"""What is recorded of a generation."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Generation:
    """The mean fitness of all members and of each task's better half, the share that diverged, and the largest length."""

    number: int
    fitness: float
    better_half: float
    diverged: float
    total_steps: int


def summarise(number: int, fitness: Tensor, total_steps: int) -> Generation:
    """From the fitness (tasks, members); members that diverged do not count in its mean.

    >>> summarise(1, torch.tensor([[1.0, math.nan]]), 9)
    Generation(number=1, fitness=1.0, better_half=1.0, diverged=0.5, total_steps=9)
    """
    is_finite = torch.isfinite(fitness)
    values = fitness[is_finite]
    better_half = torch.where(is_finite, fitness, math.inf).sort(dim=1).values[:, : fitness.shape[1] // 2]
    return Generation(
        number=number,
        fitness=float(values.mean()) if len(values) else math.inf,
        better_half=float(better_half.mean()),
        diverged=float((~is_finite).float().mean()),
        total_steps=total_steps,
    )
