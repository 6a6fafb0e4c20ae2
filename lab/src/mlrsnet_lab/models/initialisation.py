"""Initial weights of convolutions."""

import math
from collections.abc import Iterator

from torch import nn


def torchs_own(model: nn.Module) -> None:
    """Draw every convolution as `nn.Conv2d` does: uniform, of variance 1 / (3 fan_in)."""
    for layer in _convolutions(model):
        layer.reset_parameters()


def xavier(model: nn.Module) -> None:
    """Draw the weights of every convolution as the authors' meta-training does: Xavier-uniform with gain sqrt(2).

    Their variance is 4 / (fan_in + fan_out): that of He et al. where both are alike.
    """
    for layer in _convolutions(model):
        nn.init.xavier_uniform_(layer.weight, gain=math.sqrt(2))


def _convolutions(model: nn.Module) -> Iterator[nn.Conv2d]:
    return (layer for layer in model.modules() if isinstance(layer, nn.Conv2d))
