"""What the weights of a network tell before it is trained: how deep it is, whether it normalises, whether it was trained before."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

SHORTEST_GAIN = 8
"""A shorter vector may look like a trained gain by chance."""

STEADY = 2.0
"""The mean of a trained gain is at least this many times its standard deviation. That of random biases is near 0."""


class Facts(NamedTuple):
    """What is known of a network from its weights.

    matrices: tensors of two or more dimensions. parameters: all numbers. fresh, trained: vectors that look like a new and like
    a used gain.
    """

    matrices: int
    parameters: int
    fresh: int
    trained: int

    @property
    def normalises(self) -> bool:
        """Whether there are layers with gains, such as batch norm or layer norm."""
        return self.fresh + self.trained > 0

    @property
    def is_trained(self) -> bool:
        """Whether the network comes from another training: more of its gains are used than new."""
        return self.trained > self.fresh

    @property
    def depth(self) -> int:
        """Matrices whose errors multiply up: all of them without normalisation, else 1."""
        return 1 if self.normalises else max(1, self.matrices)


@torch.no_grad()
def read(weights: Iterable[Tensor]) -> Facts:
    """The facts of some weights; waits for their device.

    Gains are found by their values, since an optimizer knows no layers: a new one is all ones, a used one varies a little around
    a mean that is far from 0.

    >>> norm = torch.nn.BatchNorm1d(16)
    >>> read([torch.zeros(16, 3), norm.weight, norm.bias])
    Facts(matrices=1, parameters=80, fresh=1, trained=0)
    >>> used = torch.linspace(0.5, 1.5, 16)
    >>> read([torch.zeros(16, 3), used]).is_trained, read([torch.nn.Linear(3, 16).bias]).is_trained
    (True, False)
    """
    matrices = parameters = fresh = trained = 0
    for weight in weights:
        parameters += weight.numel()
        if weight.ndim >= 2:
            matrices += 1
        elif weight.ndim == 1 and weight.numel():
            values = weight.detach().float()
            if bool((values == 1).all()):
                fresh += 1
            elif weight.numel() >= SHORTEST_GAIN:
                spread, mean = values.std(correction=0), values.mean().abs()
                trained += bool((spread > 0) & (mean > STEADY * spread))
    return Facts(matrices, parameters, fresh, trained)
