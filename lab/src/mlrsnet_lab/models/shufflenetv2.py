"""torchvision's ShuffleNetV2 (Ma et al., 2018), also for small pictures."""

from typing import Any

from torch import nn

from mlrsnet_lab.models.options import Shape
from mlrsnet_lab.models.stem import first_conv, is_small, torchvision_models


def shufflenetv2(shape: Shape, num_classes: int, *, stem: str = "auto") -> nn.Module:
    """torchvision's `shufflenet_v2_x1_0`; the small stem has a first convolution of stride 1 and no max pooling."""
    model: Any = torchvision_models().shufflenet_v2_x1_0(num_classes=num_classes)
    small = is_small(stem, shape)
    if small or shape[0] != 3:
        model.conv1[0] = first_conv(model.conv1[0], shape[0], 3, 1 if small else 2)
    if small:
        model.maxpool = nn.Identity()
    return model
