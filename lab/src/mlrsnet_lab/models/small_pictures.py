"""Small convolutional networks of operations that `torch.func` can batch: hundreds of copies train at once."""

from collections.abc import Sequence

from torch import Tensor, nn

from mlrsnet_lab import checks
from mlrsnet_lab.models.parts import Shape


class Branch(nn.Module):
    """x + f(x), or f(x) alone."""

    def __init__(self, layers: nn.Module, skip: bool) -> None:
        super().__init__()
        self.layers, self.skip = layers, skip

    def forward(self, x: Tensor) -> Tensor:
        """The same shape as x."""
        return x + self.layers(x) if self.skip else self.layers(x)


def residual_net(shape: Shape, num_classes: int, *, width: int = 8, depth: int = 2, skip: bool = True) -> nn.Sequential:
    """A convolution, `depth` blocks of two 3x3 convolutions with batch norm, average pooling and a linear layer."""
    checks.whole_number("depth", depth)
    blocks = [
        Branch(nn.Sequential(*_convolved(width, width), nn.ReLU(), *_convolved(width, width)), skip)
        for _ in range(depth)
    ]
    after = [layer for block in blocks for layer in (block, nn.ReLU())]
    return _with_head(shape[0], checks.whole_number("width", width), num_classes, after)


def depthwise_net(shape: Shape, num_classes: int, *, width: int = 8, depth: int = 2, grow: int = 4) -> nn.Sequential:
    """MobileNetV2's inverted blocks with batch norm: 1x1 convolution to `grow` times the channels, 3x3 depthwise, 1x1 back."""
    wide = checks.whole_number("width", width) * checks.whole_number("grow", grow)
    blocks = [
        Branch(
            nn.Sequential(
                *_convolved(width, wide, 1),
                nn.ReLU(),
                *_convolved(wide, wide, 3, groups=wide),
                nn.ReLU(),
                *_convolved(wide, width, 1),
            ),
            True,
        )
        for _ in range(checks.whole_number("depth", depth))
    ]
    return _with_head(shape[0], width, num_classes, blocks)


def _convolved(inputs: int, outputs: int, side: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    padding = side // 2
    convolution = nn.Conv2d(inputs, outputs, side, stride=stride, padding=padding, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


def _with_head(channels: int, width: int, num_classes: int, blocks: Sequence[nn.Module]) -> nn.Sequential:
    first = [*_convolved(channels, width, stride=2), nn.ReLU()]
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))
