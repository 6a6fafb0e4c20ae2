"""What is known about a training before it starts, read from its weights and its optimizer alone."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

LARGEST_SIDE = 256
"""The spectrum is taken of at most this many rows and columns of a matrix."""


@torch.no_grad()
def weight_facts(parameters: Iterable[Tensor]) -> dict[str, Any]:
    """Numbers about a network's weights.

    matrices: how many tensors of two or more dimensions. parameters: how many numbers. fan_in: geometric mean over the
    matrices of the inputs of a unit. narrow: the share of matrices with a fan-in of at most 16, such as depthwise
    convolutions. gains: vectors that are all ones, which normalisation layers begin with. start: geometric mean of the
    matrices' size relative to torch's own initialisation. excess: mean over the matrices of log(s / s_random), s the largest
    singular value and s_random that of independent numbers of the same size: about 0 for fresh weights, larger for trained
    ones.
    """
    tensors = list(parameters)
    matrices = [tensor.detach().flatten(1).float().cpu() for tensor in tensors if tensor.ndim > 1]
    fans = [matrix.shape[1] for matrix in matrices]
    vectors = [tensor for tensor in tensors if tensor.ndim == 1]
    sizes = [matrix.square().mean().sqrt().item() * math.sqrt(3 * matrix.shape[1]) for matrix in matrices]
    return {
        "matrices": len(matrices),
        "parameters": sum(tensor.numel() for tensor in tensors),
        "fan_in": _geometric(fans),
        "narrow": sum(fan <= 16 for fan in fans) / max(1, len(fans)),
        "gains": sum(bool((vector == 1).all()) for vector in vectors),
        "start": _geometric([size for size in sizes if size]),
        "excess": sum(map(excess, matrices)) / max(1, len(matrices)),
    }


def excess(matrix: Tensor) -> float:
    """log(largest singular value / the one of random numbers of this size), 0 for a matrix of zeros.

    Independent numbers of size a in an m x n matrix give a (sqrt(m) + sqrt(n)), whatever their distribution.

    >>> torch.manual_seed(0)
    <torch...>
    >>> fresh = torch.nn.Linear(200, 100).weight.detach()
    >>> abs(excess(fresh)) < 0.05, excess(fresh + 0.05) > 0.5
    (True, True)
    """
    part = matrix[_spread(matrix.shape[0])][:, _spread(matrix.shape[1])]
    size = part.square().mean().sqrt().item()
    if not size:
        return 0.0
    largest = torch.linalg.matrix_norm(part, ord=2).item()
    return math.log(largest / (size * (math.sqrt(part.shape[0]) + math.sqrt(part.shape[1]))))


def _spread(count: int) -> Tensor:
    """At most `LARGEST_SIDE` indices, evenly spread."""
    return torch.linspace(0, count - 1, min(count, LARGEST_SIDE)).round().long()


def _geometric(values: list[Any]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 1.0
