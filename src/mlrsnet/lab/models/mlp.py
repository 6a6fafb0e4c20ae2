"""A fully connected network."""

import math
from itertools import pairwise

from torch import nn

from mlrsnet import _check
from mlrsnet.lab.models.options import Shape, normalisation


def mlp(shape: Shape, num_classes: int, *, width: int = 256, depth: int = 2, norm: str = "none") -> nn.Sequential:
    """Flattened pictures through `depth` hidden layers of `width` ReLUs; depth 0 is logistic regression.

    `norm`: `none`, or `batch` or `layer` before each ReLU.
    """
    sizes = [math.prod(shape)] + [_check.whole_number("width", width)] * _check.whole_number("depth", depth, 0)
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), *normalisation(norm, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], num_classes))
