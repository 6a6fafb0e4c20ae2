"""torchvision's networks, also for small pictures."""

from typing import Any

from torch import nn

from mlrsnet_lab import checks
from mlrsnet_lab.models.parts import Shape, dropout_rate, torchs_own, xavier
from mlrsnet_lab.models.stem import first_conv, is_small, torchvision_models

INITS = ("auto", "torch", "he", "xavier")
SHUFFLENETS = {1.0: "shufflenet_v2_x1_0", 0.5: "shufflenet_v2_x0_5"}
FIRST_OF_24 = 2
"""Index in MobileNetV2's `features` of the first block of 24 channels, the first to halve the picture."""


def resnet(name: str, shape: Shape, num_classes: int, *, stem: str = "auto", init: str = "auto") -> nn.Module:
    """ResNets (He et al., 2016); the small stem is one 3x3 convolution of stride 1 and no max pooling.

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


def shufflenetv2(shape: Shape, num_classes: int, *, stem: str = "auto", width: float = 1.0) -> nn.Module:
    """`shufflenet_v2_x1_0` (Ma et al., 2018); the small stem has a first convolution of stride 1 and no max pooling.

    `width` is 1, or 0.5 for `shufflenet_v2_x0_5`.
    """
    if width not in SHUFFLENETS:
        raise ValueError(f"width must be 0.5 or 1, got {width!r}: torchvision has other sizes, this lab has not")
    model: Any = getattr(torchvision_models(), SHUFFLENETS[width])(num_classes=num_classes)
    small = is_small(stem, shape)
    if small or shape[0] != 3:
        model.conv1[0] = first_conv(model.conv1[0], shape[0], 3, 1 if small else 2)
    if small:
        model.maxpool = nn.Identity()
    return model


def mobilenetv2(
    shape: Shape, num_classes: int, *, dropout: float = 0.2, stem: str = "auto", width: float = 1.0
) -> nn.Module:
    """`mobilenet_v2` (Sandler et al., 2018); the small stem sets the first convolution and the blocks of 24 channels to stride 1.

    That is what pytorch-cifar does: 32x32 pictures leave the last block as 4x4. Dropout lies before the classifier.
    `width` multiplies the number of channels.
    """
    model: Any = torchvision_models().mobilenet_v2(
        num_classes=num_classes, dropout=dropout_rate(dropout), width_mult=checks.positive("width", width)
    )
    small = is_small(stem, shape)
    if small or shape[0] != 3:
        model.features[0][0] = first_conv(model.features[0][0], shape[0], 3, 1 if small else 2)
        nn.init.kaiming_normal_(model.features[0][0].weight, mode="fan_out")  # as torchvision's
    if small:
        _depthwise(model.features[FIRST_OF_24]).stride = (1, 1)
    return model


def _depthwise(block: nn.Module) -> nn.Conv2d:
    return next(layer for layer in block.modules() if isinstance(layer, nn.Conv2d) and layer.groups > 1)
