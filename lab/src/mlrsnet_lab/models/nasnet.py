"""NASNet-A (Zoph et al., 2018) for small pictures."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mlrsnet_lab import checks
from mlrsnet_lab.models.parts import Shape

STEM = 3
"""Times `filters`: channels of the first convolution, as in the authors' network for CIFAR."""


class Separable(nn.Sequential):
    """Twice ReLU, a depthwise and a 1x1 convolution, batch norm; stride in the first."""

    def __init__(self, channels: int, kernel_size: int, stride: int = 1) -> None:
        layers: list[nn.Module] = []
        for step in (stride, 1):
            around = kernel_size // 2
            layers += [
                nn.ReLU(),
                nn.Conv2d(channels, channels, kernel_size, step, around, groups=channels, bias=False),
                nn.Conv2d(channels, channels, 1, bias=False),
                nn.BatchNorm2d(channels),
            ]
        super().__init__(*layers)


class FactorizedReduction(nn.Module):
    """Half the side: every second pixel for half of the channels, and the pixels diagonally beside them for the others."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(in_channels, channels // 2, 1, bias=False)
        self.odd = nn.Conv2d(in_channels, channels - channels // 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) to (B, channels, H / 2, W / 2), rounded up."""
        x = x.relu()
        shifted = pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        return self.norm(torch.cat([self.even(x[:, :, ::2, ::2]), self.odd(shifted[:, :, ::2, ::2])], dim=1))


class Cell(nn.Module):
    """What both cells share: the outputs of the last two cells, brought to the same side and `channels`.

    `halved` says that the cell before the last is still of twice the side.
    """

    parts: int
    """Times `channels`: what leaves the cell."""

    def __init__(self, last: int, before: int, channels: int, halved: bool) -> None:
        super().__init__()
        self.fit_last = _fitted(last, channels)
        self.fit_before = FactorizedReduction(before, channels) if halved else _fitted(before, channels)

    def forward(self, last: Tensor, before: Tensor) -> Tensor:
        """The cell's five sums, joined."""
        return torch.cat(self.combine(self.fit_last(last), self.fit_before(before)), dim=1)

    def combine(self, h: Tensor, p: Tensor) -> list[Tensor]:
        """`h` of the last cell and `p` of the one before it to `parts` tensors."""
        raise NotImplementedError


class NormalCell(Cell):
    """Keeps the side; Figure 4 of the paper, left."""

    parts = 6

    def __init__(self, last: int, before: int, channels: int, halved: bool) -> None:
        super().__init__(last, before, channels, halved)
        self.h5, self.p3 = Separable(channels, 5), Separable(channels, 3)
        self.p5, self.p3_again = Separable(channels, 5), Separable(channels, 3)
        self.h3 = Separable(channels, 3)
        self.average = _average(1)

    def combine(self, h: Tensor, p: Tensor) -> list[Tensor]:
        """Nothing inside the cell reads its sums, so all of them leave it, with `p`."""
        around = self.average(p)
        return [
            p,
            self.h5(h) + self.p3(p),
            self.p5(p) + self.p3_again(p),
            self.average(h) + p,
            around + around,
            self.h3(h) + h,
        ]


class ReductionCell(Cell):
    """Halves the side; Figure 4 of the paper, right."""

    parts = 4

    def __init__(self, last: int, before: int, channels: int, halved: bool) -> None:
        super().__init__(last, before, channels, halved)
        self.h5, self.p7 = Separable(channels, 5, 2), Separable(channels, 7, 2)
        self.p7_again, self.p5 = Separable(channels, 7, 2), Separable(channels, 5, 2)
        self.first3 = Separable(channels, 3)
        self.maximum, self.average, self.average_same = nn.MaxPool2d(3, 2, padding=1), _average(2), _average(1)

    def combine(self, h: Tensor, p: Tensor) -> list[Tensor]:
        """The first sum is read inside the cell only."""
        first = self.h5(h) + self.p7(p)
        largest = self.maximum(h)
        second = largest + self.p7_again(p)
        third = self.average(h) + self.p5(p)
        return [second, third, self.average_same(first) + second, self.first3(first) + largest]


class NASNet(nn.Module):
    """NASNet-A (`cells` @ 24 `filters`): three stacks of normal cells, a reduction cell before the second and third.

    Without the second classifier and the dropped paths that its authors train with: both belong to their 600 epochs.

    Args:
        shape: (C, H, W) of a picture; only C matters.
        num_classes: of the classifier.
        cells: normal cells in each stack, N in the paper's (N @ F).
        filters: of a convolution in the first stack, twice as many in each later one; F is 24 times that.
    """

    def __init__(self, shape: Shape, num_classes: int, *, cells: int = 6, filters: int = 32) -> None:
        super().__init__()
        count, channels = checks.whole_number("cells", cells), checks.whole_number("filters", filters)
        self.stem = nn.Sequential(
            nn.Conv2d(shape[0], STEM * channels, 3, padding=1, bias=False), nn.BatchNorm2d(STEM * channels)
        )
        self.cells = nn.ModuleList()
        before = last = STEM * channels
        halved = False
        stack: list[type[Cell]] = [NormalCell] * count
        smaller: list[type[Cell]] = [ReductionCell, *stack]
        for kind in stack + smaller + smaller:
            channels *= 2 if kind is ReductionCell else 1
            self.cells.append(kind(last, before, channels, halved))
            before, last = last, kind.parts * channels
            halved = kind is ReductionCell
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(last, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of pictures (B, C, H, W)."""
        before = last = self.stem(x)
        for cell in self.cells:
            before, last = last, cell(last, before)
        return self.classifier(self.pool(last.relu()).flatten(1))


def _fitted(in_channels: int, channels: int) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), nn.Conv2d(in_channels, channels, 1, bias=False), nn.BatchNorm2d(channels))


def _average(stride: int) -> nn.AvgPool2d:
    """Of 3x3 pixels, fewer at the border, as TensorFlow averages."""
    return nn.AvgPool2d(3, stride, padding=1, count_include_pad=False)
