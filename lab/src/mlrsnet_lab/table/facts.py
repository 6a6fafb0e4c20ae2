"""What is known about a training before it starts, read from its weights alone."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from mlrsnet.sensors import read_facts

NARROW = 16


@torch.no_grad()
def weight_facts(parameters: Iterable[Tensor]) -> dict[str, Any]:
    """Numbers about a network's weights.

    matrices, parameters, depth, is_trained: see `mlrsnet.law.Facts`. fan_in: geometric mean over the
    matrices of the inputs of a unit. narrow: the share of matrices with a fan-in of at most 16, such as depthwise
    convolutions. start: geometric mean of the matrices' size relative to torch's own initialisation.
    """
    tensors = list(parameters)
    known = read_facts(tensors)
    matrices = [tensor.detach().flatten(1).float() for tensor in tensors if tensor.ndim > 1]
    fans = [matrix.shape[1] for matrix in matrices]
    sizes = [matrix.square().mean().sqrt().item() * math.sqrt(3 * matrix.shape[1]) for matrix in matrices]
    return {
        **{name: getattr(known, name) for name in ("matrices", "parameters", "depth", "is_trained")},
        "fan_in": _geometric(fans),
        "narrow": sum(fan <= NARROW for fan in fans) / max(1, len(fans)),
        "start": _geometric([size for size in sizes if size]),
    }


def _geometric(values: list[Any]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 1.0
