"""A fully connected network."""

import math
from itertools import pairwise

from torch import nn

from mlrsnet_lab import checks
from mlrsnet_lab.models.parts import normalisation

INITS = ("torch", "he")


def mlp(
    shape: tuple[int, ...],
    outputs: int,
    *,
    width: int = 256,
    depth: int = 2,
    norm: str = "none",
    init: str = "torch",
) -> nn.Sequential:
    """Flattened pictures, or rows of numbers, through `depth` hidden layers of `width` ReLUs; depth 0 is linear.

    `norm`: `none`, or `batch` or `layer` before each ReLU. `init`: torch's own, or `he`: N(0, 2 / inputs) and no biases, which
    keeps the size of signals through many layers.
    """
    sizes = [math.prod(shape)] + [checks.whole_number("width", width)] * checks.whole_number("depth", depth, 0)
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), *normalisation(norm, after), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))
    if checks.one_of("init", init, INITS) == "he":
        network.apply(_he)
    return network


def _he(layer: nn.Module) -> None:
    if isinstance(layer, nn.Linear):
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
