"""How good a trained network is on held-out data, one number a training; smaller is better.

A fitness is any function (outputs, targets) -> (members,): outputs (members, examples, ..., classes), with -inf where a
task does not have a class, targets (members, examples, ...).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mlrsnet import _check

Fitness = Callable[[Tensor, Tensor], Tensor]

LOWEST, HIGHEST = math.log(0.02), math.log(1e3)
"""Temperatures are looked for between these."""


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy.

    >>> loss(torch.zeros(3, 7, 10), torch.zeros(3, 7, dtype=torch.long)).tolist()
    [2.302..., 2.302..., 2.302...]
    """
    each = cross_entropy(outputs.flatten(0, -2).float(), targets.flatten(), reduction="none")
    return each.view(len(outputs), -1).mean(1)


def calibrated_loss(outputs: Tensor, targets: Tensor, *, rounds: int = 24) -> Tensor:
    """The cross-entropy of outputs / tau at the best temperature tau of each training.

    An overconfident network and a better one can have the same loss; what is left after calibration is what the network
    knows. Convex in 1 / tau, so unimodal in log tau: golden-section search.

    >>> outputs, targets = torch.tensor([[[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]]]), torch.tensor([[0, 0, 1]])
    >>> round(loss(outputs, targets).item(), 3), round(calibrated_loss(outputs, targets).item(), 3)
    (0.794, 0.637)
    """
    z = outputs.float().flatten(1, -2)  # (members, examples, classes)
    z = z - z.gather(-1, targets.flatten(1).unsqueeze(-1))  # the target's is 0

    def at(log_tau: Tensor) -> Tensor:
        return torch.logsumexp(torch.exp(-log_tau).view(-1, 1, 1) * z, dim=-1).mean(1)

    part = (math.sqrt(5) - 1) / 2
    low = torch.full((len(z),), LOWEST, device=z.device)
    high = torch.full_like(low, HIGHEST)
    left, right = high - part * (high - low), low + part * (high - low)
    at_left, at_right = at(left), at(right)
    for _ in range(rounds):
        falls = at_left < at_right  # the lowest point lies left of `right`
        low, high = torch.where(falls, low, left), torch.where(falls, right, high)
        new = torch.where(falls, high - part * (high - low), low + part * (high - low))
        at_new = at(new)
        left, right = torch.where(falls, new, right), torch.where(falls, left, new)
        at_left, at_right = torch.where(falls, at_new, at_right), torch.where(falls, at_left, at_new)
    tried = torch.stack((at(low), at_left, at_right, at(high), at(torch.zeros_like(low))))
    return tried.min(dim=0).values


def error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of wrong answers: what is reported in the end, but flat almost everywhere."""
    wrong = (outputs.argmax(-1) != targets).flatten(1).float().mean(1)
    return torch.where(outputs.isnan().flatten(1).any(1), torch.nan, wrong)


FITNESS: dict[str, Fitness] = {"calibrated": calibrated_loss, "loss": loss, "error": error}


def find_fitness(fitness: str | Fitness) -> Fitness:
    """A fitness by its name, or one that is given."""
    if isinstance(fitness, str):
        return FITNESS[_check.one_of("fitness", fitness, FITNESS)]
    if not callable(fitness):
        raise TypeError(
            f"fitness must be one of {', '.join(FITNESS)} or a function of outputs and targets, got {fitness!r}"
        )
    return fitness
