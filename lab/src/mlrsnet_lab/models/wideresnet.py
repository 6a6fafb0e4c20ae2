"""Wide residual networks (Zagoruyko & Komodakis, 2016)."""

from torch import Tensor, nn

from mlrsnet_lab import checks
from mlrsnet_lab.models.parts import Shape, dropout_rate, xavier

CHANNELS = 16
"""Channels of the first convolution, and of the first group at width 1."""

INITS = ("he", "xavier")


class WideBlock(nn.Module):
    """Two 3x3 convolutions, each after batch norm and ReLU; dropout between them; stride in the first."""

    def __init__(self, in_channels: int, channels: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        same = in_channels == channels and stride == 1
        self.shortcut = None if same else nn.Conv2d(in_channels, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Input plus residual; where the shape changes the shortcut reads the activated input, as in their code."""
        active = self.norm1(x).relu()
        residual = self.conv2(self.dropout(self.norm2(self.conv1(active)).relu()))
        return residual + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    """WRN-depth-width: three groups of pre-activation blocks, 16, 32 and 64 times `width` channels.

    Args:
        shape: (C, H, W) of a picture; only C matters.
        num_classes: of the classifier.
        depth: 6n + 4, for n blocks in each group.
        width: k in the paper, how many times wider than a ResNet.
        dropout: between the convolutions of a block; 0 in most of the paper's tables.
        init: of the convolutions, `he` or `xavier` (Xavier-uniform with gain sqrt(2)).
    """

    def __init__(
        self,
        shape: Shape,
        num_classes: int,
        *,
        depth: int = 28,
        width: int = 10,
        dropout: float = 0.0,
        init: str = "he",
    ) -> None:
        super().__init__()
        blocks, rate = _blocks(depth), dropout_rate(dropout)
        k = checks.whole_number("width", width)
        self.conv = nn.Conv2d(shape[0], CHANNELS, 3, padding=1, bias=False)
        self.group1 = _group(CHANNELS, CHANNELS * k, blocks, 1, rate)
        self.group2 = _group(CHANNELS * k, 2 * CHANNELS * k, blocks, 2, rate)
        self.group3 = _group(2 * CHANNELS * k, 4 * CHANNELS * k, blocks, 2, rate)
        self.norm = nn.BatchNorm2d(4 * CHANNELS * k)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(4 * CHANNELS * k, num_classes)
        self.apply(_initialise)
        if checks.one_of("init", init, INITS) == "xavier":
            xavier(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of pictures (B, C, H, W)."""
        x = self.group3(self.group2(self.group1(self.conv(x))))
        return self.classifier(self.pool(self.norm(x).relu()).flatten(1))


def _blocks(depth: int) -> int:
    blocks, rest = divmod(checks.whole_number("depth", depth) - 4, 6)
    if blocks < 1 or rest:
        raise ValueError(f"depth must be 6n + 4 with n >= 1, got {depth!r}: use 10, 16, 22, 28, 40")
    return blocks


def _group(in_channels: int, channels: int, blocks: int, stride: int, dropout: float) -> nn.Sequential:
    first = WideBlock(in_channels, channels, stride, dropout)
    return nn.Sequential(first, *(WideBlock(channels, channels, 1, dropout) for _ in range(blocks - 1)))


def _initialise(layer: nn.Module) -> None:
    """He initialisation, as in Zagoruyko and Komodakis's code; batch norm keeps torch's ones and zeros."""
    if isinstance(layer, nn.Conv2d):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(layer, nn.Linear):
        nn.init.zeros_(layer.bias)
