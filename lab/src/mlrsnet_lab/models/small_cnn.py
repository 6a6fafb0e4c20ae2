"""A small convolutional network for small pictures."""

from torch import nn

from mlrsnet_lab import checks
from mlrsnet_lab.models.parts import NORMS, Shape, xavier

INITS = ("torch", "xavier")


def small_cnn(
    shape: Shape, num_classes: int, *, width: int = 16, norm: str = "batch", init: str = "torch"
) -> nn.Sequential:
    """Two 3x3 convolutions, the second of stride 2, average pooling and a linear layer.

    `norm`: `batch`, `layer` (over channels and places of a picture) or `none`, before each ReLU. `init`: `torch` (the
    layers' own), or `xavier` for the convolutions (Xavier-uniform with gain sqrt(2)).
    """
    checks.whole_number("width", width)
    checks.one_of("norm", norm, ("none", *NORMS))
    checks.one_of("init", init, INITS)

    def normalised(channels: int) -> list[nn.Module]:
        made = {"batch": nn.BatchNorm2d(channels), "layer": nn.GroupNorm(1, channels)}
        return [made[norm]] if norm in made else []

    bias = norm == "none"
    model = nn.Sequential(
        nn.Conv2d(shape[0], width, 3, padding=1, bias=bias),
        *normalised(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=bias),
        *normalised(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, num_classes),
    )
    if init == "xavier":
        xavier(model)
    return model
