"""Evolution strategies: estimate a gradient from values alone (Salimans et al. 2017).

For a fitness f, directions eps_i ~ N(0, I) in antithetic pairs eps, -eps, and n of them in all:

    grad E[f(phi + sigma eps)]  ~  sum_i u_i eps_i / (n sigma),   u_i = f_i, or the centred ranks of the f_i

The fitness of a whole training has cliffs, because one LR too large makes it diverge, and its scale depends on the task.
With ranks, neither a cliff nor a hard task dominates the sum.
"""

import torch
from torch import Tensor


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


def gradient(utilities: Tensor, directions: Tensor, sigma: float) -> Tensor:
    """sum_i u_i eps_i / (n sigma), for utilities (..., n) and directions (..., n, size), averaged over leading dimensions.

    For a linear or quadratic f with u_i = f_i, a pair gives eps eps^T grad f. Directions with sum_i eps_i eps_i^T = n I
    then give the exact gradient.
    """
    return torch.einsum("...n,...ns->s", utilities.to(directions), directions) / (utilities.numel() * sigma)
