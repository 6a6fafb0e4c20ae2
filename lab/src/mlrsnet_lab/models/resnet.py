"""torchvision's ResNets (He et al., 2016), also for small pictures."""

from typing import Any

from torch import nn

from mlrsnet_lab import checks
from mlrsnet_lab.models.initialisation import torchs_own, xavier
from mlrsnet_lab.models.options import Shape
from mlrsnet_lab.models.stem import first_conv, is_small, torchvision_models

INITS = ("auto", "torch", "he", "xavier")


def resnet(name: str, shape: Shape, num_classes: int, *, stem: str = "auto", init: str = "auto") -> nn.Module:
    """torchvision's `name`; the small stem is one 3x3 convolution of stride 1 and no max pooling.

    init is `he` (torchvision's), `torch` (the layers' own) or `xavier` (Xavier-uniform with gain sqrt(2)). auto takes `torch`
    with the small stem, as CIFAR ResNets commonly do. The authors' meta-test does so too; their meta-training has `xavier`.
    Below batch norm the size of the weights only scales the LR, by 1 / |w|^2: `he` and `xavier` start with about 6 times as
    small steps.
    """
    model: Any = getattr(torchvision_models(), name)(num_classes=num_classes)
    small = is_small(stem, shape)
    if small or shape[0] != 3:
        model.conv1 = first_conv(model.conv1, shape[0], *((3, 1) if small else (7, 2)))
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")  # as torchvision's
    if small:
        model.maxpool = nn.Identity()
    if checks.one_of("init", init, INITS) == "torch" or (init == "auto" and small):
        torchs_own(model)
    elif init == "xavier":
        xavier(model)
    return model
