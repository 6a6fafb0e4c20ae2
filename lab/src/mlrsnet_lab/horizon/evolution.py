"""Evolution strategies: estimate a gradient from values alone (Salimans et al. 2017).

For a fitness f, directions eps_i ~ N(0, I) in antithetic pairs eps, -eps, and n of them in all:

    grad E[f(phi + sigma eps)]  ~  sum_i u_i eps_i / (n sigma),   u_i = f_i, or the centred rank of f_i

The fitness of a whole training has cliffs, because one LR too large makes it diverge, and its scale depends on the task.
With ranks, neither a cliff nor a hard task dominates the sum.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mlrsnet_lab import checks


def antithetic(pairs: int, size: int, generator: torch.Generator) -> Tensor:
    """(2 pairs, size) normal directions; the second half is minus the first.

    >>> eps = antithetic(3, 5, torch.Generator().manual_seed(0))
    >>> eps.shape, torch.equal(eps[:3], -eps[3:])
    (torch.Size([6, 5]), True)
    """
    half = torch.randn(pairs, size, generator=generator)
    return torch.cat((half, -half))


def centred_ranks(fitness: Tensor) -> Tensor:
    """Ranks along the last dimension, evenly spaced from -1/2 (smallest value) to 1/2. Equal values share their mean rank.

    Values that are not finite, -inf too, rank as the largest.

    >>> centred_ranks(torch.tensor([0.3, float("nan"), 0.1, 0.2])).tolist()
    [0.166..., 0.5, -0.5, -0.166...]
    """
    values = torch.where(torch.isfinite(fitness), fitness, torch.inf)
    smaller = (values.unsqueeze(-2) < values.unsqueeze(-1)).sum(-1)
    equal = (values.unsqueeze(-2) == values.unsqueeze(-1)).sum(-1)
    ranks = smaller + (equal - 1) / 2
    return ranks / max(fitness.shape[-1] - 1, 1) - 0.5


@dataclass(frozen=True)
class Evolution:
    """How a `HorizonTrainer` learns.

    Args:
        generations: how many there will be. The LR of the meta-optimizer falls to 0 over them.
        members: trainings per task, an even number.
        sigma: size of the perturbations.
        meta_lr: LR of Adam at the start.
        average: decay of the average over generations that becomes the schedule.
        seed: of everything random.
    """

    generations: int = 150
    members: int = 16
    sigma: float = 0.1
    meta_lr: float = 0.03
    average: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        checks.whole_number("generations", self.generations)
        if checks.whole_number("members", self.members, 2) % 2:
            raise ValueError(f"members must be even, got {self.members}: perturbations come in pairs")
        checks.positive("sigma", self.sigma)
        checks.positive("meta_lr", self.meta_lr)
        checks.below_one("average", self.average)
        checks.whole_number("seed", self.seed, 0)


def gradient(utilities: Tensor, directions: Tensor, sigma: float) -> Tensor:
    """sum_i u_i eps_i / (n sigma), for utilities (..., n) and directions (..., n, size), averaged over leading dimensions.

    For a linear or quadratic f with u_i = f_i, a pair gives eps eps^T grad f. Directions with sum_i eps_i eps_i^T = n I
    then give the exact gradient.
    """
    return torch.einsum("...n,...ns->s", utilities.to(directions), directions) / (utilities.numel() * sigma)


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
