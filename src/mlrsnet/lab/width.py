"""How wide a minimum is (Section 5.3): the loss along random rays that begin at the solution.

w(r) = w + r d,  d a random direction of length 1, for r from 0 to `FARTHEST`; each ray is drawn from the run's seed.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from mlrsnet.lab.feeds import Score

FARTHEST, POINTS = 20.0, 11
Evaluate = Callable[[], dict[str, Score]]


@torch.no_grad()
def along_rays(model: nn.Module, evaluate: Evaluate, rays: int, seed: int) -> dict[str, Any]:
    """Losses (rays, distances) of every part that `evaluate` gives; the model is left as it was."""
    solution = parameters_to_vector(model.parameters())
    random = torch.Generator().manual_seed(seed)
    distances = torch.linspace(0, FARTHEST, POINTS).tolist()
    found: dict[str, list[list[float]]] = {}
    try:
        for _ in range(rays):
            direction = _direction(solution, random)
            scores = [_at(model, solution + distance * direction, evaluate) for distance in distances]
            for part in scores[0]:
                found.setdefault(part, []).append([score[part].loss for score in scores])
    finally:
        vector_to_parameters(solution, model.parameters())
    return {"distance": distances, **found}


def _direction(like: Tensor, random: torch.Generator) -> Tensor:
    drawn = torch.randn(len(like), generator=random)
    return (drawn / drawn.norm()).to(like)


def _at(model: nn.Module, weights: Tensor, evaluate: Evaluate) -> dict[str, Score]:
    vector_to_parameters(weights, model.parameters())
    return evaluate()
