"""torchvision's MobileNetV2 (Sandler et al., 2018), also for small pictures."""

from typing import Any

from torch import nn

from mlrsnet_lab import checks
from mlrsnet_lab.models.options import Shape, dropout_rate
from mlrsnet_lab.models.stem import first_conv, is_small, torchvision_models

FIRST_OF_24 = 2
"""Index in `features` of the first block of 24 channels, the first to halve the picture."""


def mobilenetv2(
    shape: Shape, num_classes: int, *, dropout: float = 0.2, stem: str = "auto", width: float = 1.0
) -> nn.Module:
    """torchvision's `mobilenet_v2`; the small stem sets the first convolution and the blocks of 24 channels to stride 1.

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
