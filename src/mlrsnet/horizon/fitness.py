"""How good a trained network is on held-out data, one number a training; smaller is better.

A fitness is any function (outputs, targets) -> (members,): outputs (members, examples, ..., classes), with -inf where a
task does not have a class, targets (members, examples, ...).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

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


def calibrated_loss(outputs: Tensor, targets: Tensor, *, rounds: int = 20) -> Tensor:
    """The cross-entropy of outputs / tau at the best temperature tau of each training.

    An overconfident network and a better one can have the same loss; what is left after calibration is what the network
    knows. Convex in 1 / tau, so unimodal in log tau: golden-section search.

    >>> outputs, targets = torch.tensor([[[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]]]), torch.tensor([[0, 0, 1]])
    >>> round(loss(outputs, targets).item(), 3), round(calibrated_loss(outputs, targets).item(), 3)
    (0.794, 0.637)
    """
    outputs = outputs.float()

    def at(log_tau: Tensor) -> Tensor:
        return loss(outputs / log_tau.exp().view(-1, *[1] * (outputs.ndim - 1)), targets)

    low = torch.full((len(outputs),), LOWEST, device=outputs.device)
    high, part = torch.full_like(low, HIGHEST), (math.sqrt(5) - 1) / 2
    for _ in range(rounds):
        left, right = high - part * (high - low), low + part * (high - low)
        to_the_left = at(left) < at(right)
        low, high = torch.where(to_the_left, low, left), torch.where(to_the_left, right, high)
    tried = torch.stack((at(low), at((low + high) / 2), at(high), loss(outputs, targets)))
    return tried.min(dim=0).values


def error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of wrong answers: what is reported in the end, but flat almost everywhere."""
    wrong = (outputs.argmax(-1) != targets).flatten(1).float().mean(1)
    return torch.where(outputs.isnan().flatten(1).any(1), torch.nan, wrong)


FITNESS: dict[str, Fitness] = {"calibrated": calibrated_loss, "loss": loss, "error": error}
