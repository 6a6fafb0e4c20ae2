"""What torchvision's networks for small pictures share."""

import importlib
from typing import Any

import torch
from torch import nn

from mlrsnet_lab import checks
from mlrsnet_lab.models.parts import Shape

STEMS = ("auto", "small", "original")
ORIGINAL_FROM = 128
"""Pictures of this side or more keep the original stem, which makes them 4 times smaller before the first block."""


def torchvision_models() -> Any:
    """Import `torchvision.models`, or raise an error that says how to install it."""
    try:
        return importlib.import_module("torchvision.models")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"this network needs {error.name}, which is not installed: pip install 'mlrsnet-lab[vision]'"
        ) from None
    except RuntimeError as error:  # PyPI's beside a torch for CPUs lacks its operators
        raise ImportError(
            f"this network needs a torchvision of the same build as torch {torch.__version__} ({error}): "
            "install torchvision from the index that torch came from"
        ) from None


def is_small(stem: str, shape: Shape) -> bool:
    """Whether to use the stem for small pictures; `auto` decides by the shorter side."""
    if checks.one_of("stem", stem, STEMS) == "auto":
        return min(shape[1:]) < ORIGINAL_FROM
    return stem == "small"


def first_conv(old: nn.Conv2d, in_channels: int, kernel_size: int, stride: int) -> nn.Conv2d:
    """The network's first convolution for other pictures, with torch's own initialisation."""
    padding = kernel_size // 2
    return nn.Conv2d(in_channels, old.out_channels, kernel_size, stride, padding, bias=False)
