"""How good trained networks are on held-out data: one number per training, smaller is better.

A fitness is any function (outputs, targets) -> (members,). Outputs are (members, examples, ..., classes), -inf for classes
that a task does not have; targets are (members, examples, ...). Targets that are floats are numbers to predict: then `calibrated`
and `loss` are the mean squared error, divided by the variance of the targets so that tasks can be compared.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mlrsnet_lab import checks

Fitness = Callable[[Tensor, Tensor], Tensor]

LOWEST, HIGHEST = math.log(0.02), math.log(1e3)
"""Limits of log(temperature) in the search."""


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy.

    >>> loss(torch.zeros(3, 7, 10), torch.zeros(3, 7, dtype=torch.long)).tolist()
    [2.302..., 2.302..., 2.302...]
    """
    if targets.is_floating_point():
        return unexplained(outputs, targets)
    each = cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none")
    return each.view(len(outputs), -1).mean(1)


def calibrated_loss(outputs: Tensor, targets: Tensor, *, rounds: int = 24) -> Tensor:
    """Mean cross-entropy of outputs / tau, at the temperature tau that is best for each training.

    A network that knows more can have a higher loss because it is overconfident. Calibration removes that.

    The loss is convex in 1 / tau, so it has one minimum in log tau, which golden-section search finds.

    Args:
        outputs, targets: see the module.
        rounds: of the search.

    >>> outputs, targets = torch.tensor([[[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]]]), torch.tensor([[0, 0, 1]])
    >>> round(loss(outputs, targets).item(), 3), round(calibrated_loss(outputs, targets).item(), 3)
    (0.794, 0.637)
    """
    if targets.is_floating_point():
        return unexplained(outputs, targets)
    z = outputs.flatten(1, -2)  # (members, examples, classes)
    z = z - z.gather(-1, targets.flatten(1).unsqueeze(-1))  # then the loss is logsumexp(z)

    def at(log_tau: Tensor) -> Tensor:
        return torch.logsumexp(torch.exp(-log_tau).view(-1, 1, 1) * z, dim=-1).mean(1)

    golden = (math.sqrt(5) - 1) / 2
    low = torch.full((len(z),), LOWEST, dtype=z.dtype, device=z.device)
    high = torch.full_like(low, HIGHEST)
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = at(left), at(right)
    for _ in range(rounds):
        falls = at_left < at_right  # then the minimum lies left of `right`
        low, high = torch.where(falls, low, left), torch.where(falls, right, high)
        new = torch.where(falls, high - golden * (high - low), low + golden * (high - low))
        at_new = at(new)
        left, right = torch.where(falls, new, right), torch.where(falls, left, new)
        at_left, at_right = torch.where(falls, at_new, at_right), torch.where(falls, at_left, at_new)
    tried = torch.stack((at(low), at_left, at_right, at(high), at(torch.zeros_like(low))))
    return tried.min(dim=0).values


def unexplained(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error / variance of the targets: 1 for a network that predicts their mean.

    >>> unexplained(torch.zeros(1, 4, 1), torch.tensor([[[-1.0], [1.0], [-1.0], [1.0]]])).tolist()
    [1.0]
    """
    variance = (targets - targets.mean(1, keepdim=True)).square().flatten(1).mean(1)
    return (outputs - targets).square().flatten(1).mean(1) / variance


FITNESS: dict[str, Fitness] = {"calibrated": calibrated_loss, "loss": loss}


def find_fitness(fitness: str | Fitness) -> Fitness:
    """The fitness of a name, or the one that is given."""
    if isinstance(fitness, str):
        return FITNESS[checks.one_of("fitness", fitness, FITNESS)]
    if not callable(fitness):
        raise TypeError(
            f"fitness must be one of {', '.join(FITNESS)} or a function of outputs and targets, got {fitness!r}"
        )
    return fitness
