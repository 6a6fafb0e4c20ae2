"""A small convolutional network for small pictures."""

from torch import nn


def small_cnn(in_channels: int = 1, num_classes: int = 10, width: int = 16) -> nn.Sequential:
    """Two 3x3 convolutions with batch norm, the second of stride 2, average pooling and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(in_channels, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, num_classes),
    )
