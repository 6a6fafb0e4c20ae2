"""A small convolutional network for small pictures."""

from torch import nn

from mlrsnet import _check
from mlrsnet.lab.models.options import NORMS


def small_cnn(in_channels: int = 1, num_classes: int = 10, width: int = 16, norm: str = "batch") -> nn.Sequential:
    """Two 3x3 convolutions, the second of stride 2, average pooling and a linear layer.

    `norm`: `batch`, `layer` (over channels and places of a picture) or `none`, before each ReLU.
    """
    _check.one_of("norm", norm, ("none", *NORMS))

    def normalised(channels: int) -> list[nn.Module]:
        made = {"batch": nn.BatchNorm2d(channels), "layer": nn.GroupNorm(1, channels)}
        return [made[norm]] if norm in made else []

    bias = norm == "none"
    return nn.Sequential(
        nn.Conv2d(in_channels, width, 3, padding=1, bias=bias),
        *normalised(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=bias),
        *normalised(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, num_classes),
    )
