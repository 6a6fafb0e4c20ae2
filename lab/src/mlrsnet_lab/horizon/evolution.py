"""Evolution strategies: estimate a gradient from values alone (Salimans et al. 2017).

For a fitness f, directions eps_i ~ N(0, I) in antithetic pairs eps, -eps, and n of them in all:

    grad E[f(phi + sigma eps)]  ~  sum_i u_i eps_i / (n sigma),   u_i = f_i, or the centred ranks of the f_i

The fitness of a whole training has cliffs, because one LR too large makes it diverge, and its scale depends on the task.
With ranks, neither a cliff nor a hard task dominates the sum. With gaps, a failure counts by its size, and a task on which all
members end alike hardly counts.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mlrsnet_lab import checks

NEAR_0, LARGEST_GAP = 0.05, 2.0
"""Keep trainings that end near 0, and those that diverge, from dominating the sum of gaps."""


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


def centred_gaps(fitness: Tensor) -> Tensor:
    """log((f + 0.05) / (median + 0.05)) along the last dimension, at most 2 either way.

    Values that are not finite count as the largest gap.

    >>> centred_gaps(torch.tensor([0.95, float("nan"), 0.95, 1.95])).tolist()
    [0.0, 2.0, 0.0, 0.693...]
    """
    values = torch.where(torch.isfinite(fitness), fitness, torch.inf).clamp(min=0) + NEAR_0
    gaps = torch.log(values / values.median(dim=-1, keepdim=True).values)
    return torch.nan_to_num(gaps, nan=0.0).clamp(-LARGEST_GAP, LARGEST_GAP)  # NaN: the median diverged, too


UTILITIES: dict[str, Callable[[Tensor], Tensor]] = {"ranks": centred_ranks, "gaps": centred_gaps}


@dataclass(frozen=True)
class Evolution:
    """How a `HorizonTrainer` learns.

    Args:
        generations: how many there will be. The LR of the meta-optimizer falls to 0 over them.
        members: trainings per task, an even number.
        sigma: size of the perturbations.
        meta_lr: LR of Adam at the start.
        utility: `ranks`, or `gaps`, which see the size of a failure.
        average: decay of the average over generations that becomes the schedule.
        seed: of everything random.
    """

    generations: int = 150
    members: int = 16
    sigma: float = 0.1
    meta_lr: float = 0.03
    utility: str = "ranks"
    average: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        checks.whole_number("generations", self.generations)
        if checks.whole_number("members", self.members, 2) % 2:
            raise ValueError(f"members must be even, got {self.members}: perturbations come in pairs")
        checks.positive("sigma", self.sigma)
        checks.positive("meta_lr", self.meta_lr)
        checks.one_of("utility", self.utility, UTILITIES)
        checks.below_one("average", self.average)
        checks.whole_number("seed", self.seed, 0)


def gradient(utilities: Tensor, directions: Tensor, sigma: float) -> Tensor:
    """sum_i u_i eps_i / (n sigma), for utilities (..., n) and directions (..., n, size), averaged over leading dimensions.

    For a linear or quadratic f with u_i = f_i, a pair gives eps eps^T grad f. Directions with sum_i eps_i eps_i^T = n I
    then give the exact gradient.
    """
    return torch.einsum("...n,...ns->s", utilities.to(directions), directions) / (utilities.numel() * sigma)
