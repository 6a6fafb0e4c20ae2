"""The width of a minimum (Section 5.3): the loss along random rays from the solution.

w(r) = w + r d, where d is a random direction of length 1 and r goes from 0 to `FARTHEST`. The run's seed decides the rays.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mlrsnet_lab.feeds import Score

FARTHEST, POINTS = 20.0, 11
Evaluate = Callable[[], dict[str, Score]]


@torch.no_grad()
def along_rays(model: nn.Module, evaluate: Evaluate, rays: int, seed: int) -> dict[str, Any]:
    """The losses (rays, distances) of every part that `evaluate` returns. The model is left as it was."""
    weights = list(model.parameters())
    solution = [weight.clone() for weight in weights]
    random = torch.Generator().manual_seed(seed)
    distances = torch.linspace(0, FARTHEST, POINTS).tolist()
    found: dict[str, list[float]] = {}
    try:
        for _ in range(rays):
            direction = _direction(weights, random)
            for distance in distances:
                _place(weights, torch._foreach_add(solution, direction, alpha=distance))
                for part, score in evaluate().items():
                    found.setdefault(part, []).append(score.loss)
    finally:
        _place(weights, solution)
    return {"distance": distances, **{part: _rows(losses) for part, losses in found.items()}}


def _direction(weights: list[nn.Parameter], random: torch.Generator) -> list[Tensor]:
    """A random direction, of length 1 over all weights together."""
    drawn = torch.randn(sum(weight.numel() for weight in weights), generator=random)
    pieces = (drawn / drawn.norm()).split([weight.numel() for weight in weights])
    return [piece.view(weight.shape).to(weight) for piece, weight in zip(pieces, weights, strict=True)]


def _place(weights: list[nn.Parameter], values: Sequence[Tensor]) -> None:
    for weight, value in zip(weights, values, strict=True):
        weight.copy_(value)


def _rows(losses: list[float]) -> list[list[float]]:
    return [losses[i : i + POINTS] for i in range(0, len(losses), POINTS)]
