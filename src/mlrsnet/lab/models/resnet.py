"""torchvision's ResNets (He et al., 2016), also for small pictures."""

from typing import Any

from torch import nn

from mlrsnet import _check
from mlrsnet.lab.models.options import Shape
from mlrsnet.lab.models.stem import first_conv, is_small, torchvision_models

INITS = ("auto", "torch", "he")


def resnet(name: str, shape: Shape, num_classes: int, *, stem: str = "auto", init: str = "auto") -> nn.Module:
    """torchvision's `name`; the small stem is one 3x3 convolution of stride 1 and no max pooling.

    init is `he` (torchvision's) or `torch` (the layers' own); auto takes `torch` with the small stem, as CIFAR ResNets
    commonly do, the authors' too. Below batch norm the size of the weights only scales the LR, by 1 / |w|^2: `he` starts
    with about 6 times as small steps.
    """
    model: Any = getattr(torchvision_models(), name)(num_classes=num_classes)
    small = is_small(stem, shape)
    if small or shape[0] != 3:
        model.conv1 = first_conv(model.conv1, shape[0], *((3, 1) if small else (7, 2)))
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")  # as torchvision's
    if small:
        model.maxpool = nn.Identity()
    if _check.one_of("init", init, INITS) == "torch" or (init == "auto" and small):
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                module.reset_parameters()
    return model
