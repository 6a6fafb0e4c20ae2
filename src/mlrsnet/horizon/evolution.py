"""Evolution strategies: the gradient of an expected fitness from its values alone (Salimans et al. 2017).

With antithetic pairs eps_i, -eps_i of N(0, I) and a fitness f to be made small:

    grad E[f(phi + sigma eps)]  ~  sum_i u_i eps_i / (n sigma),   u_i = f_i, or the centred ranks of the f_i

A whole training is a function with cliffs (one LR too large and it diverges) and its loss depends on the task: ranks keep
a cliff or a hard task from outvoting the others.
"""

import torch
from torch import Tensor


def antithetic(pairs: int, size: int, generator: torch.Generator) -> Tensor:
    """(2 pairs, size) normal directions, the second half the first one mirrored.

    >>> eps = antithetic(3, 5, torch.Generator().manual_seed(0))
    >>> eps.shape, torch.equal(eps[:3], -eps[3:])
    (torch.Size([6, 5]), True)
    """
    half = torch.randn(pairs, size, generator=generator)
    return torch.cat((half, -half))


def centred_ranks(fitness: Tensor) -> Tensor:
    """Ranks along the last dimension, spread from -1/2 (the smallest) to 1/2; equal values share their mean rank.

    Whatever is not finite is worse than everything finite.

    >>> centred_ranks(torch.tensor([0.3, float("nan"), 0.1, 0.2])).tolist()
    [0.166..., 0.5, -0.5, -0.166...]
    """
    values = torch.where(torch.isfinite(fitness), fitness, torch.inf)
    smaller = (values.unsqueeze(-2) < values.unsqueeze(-1)).sum(-1)
    equal = (values.unsqueeze(-2) == values.unsqueeze(-1)).sum(-1)
    ranks = smaller + (equal - 1) / 2
    return ranks / max(fitness.shape[-1] - 1, 1) - 0.5


def gradient(utilities: Tensor, directions: Tensor, sigma: float) -> Tensor:
    """sum_i u_i eps_i / (n sigma), for utilities (..., n) and directions (..., n, size): the mean over all of them.

    On a linear or quadratic f with raw values, each antithetic pair gives eps eps^T grad f, so that directions with
    sum_i eps_i eps_i^T = n I give the gradient exactly.
    """
    return torch.einsum("...n,...ns->s", utilities.to(directions), directions) / (utilities.numel() * sigma)
