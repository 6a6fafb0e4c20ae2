"""Small networks of the new kinds, beside those of the table."""

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from lab.studies.law.nets import Embedded, Residual, transformer_block


class ConvVAE(nn.Module):
    """A variational autoencoder of pictures of 28 x 28, by convolutions and their transposes."""

    def __init__(self, width: int, code: int) -> None:
        super().__init__()
        self.into = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(98 * width, 2 * code),
        )  # fmt: skip
        self.out = nn.Sequential(
            nn.Linear(code, 98 * width), nn.ReLU(), nn.Unflatten(1, (2 * width, 7, 7)),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(width, 1, 4, 2, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the picture again, and what the code costs for each one."""
        mean, log_std = self.into(x).chunk(2, dim=1)
        cost = 0.5 * (mean.square() + (2 * log_std).exp() - 1 - 2 * log_std).sum(1)
        return self.out(mean + torch.randn_like(mean) * log_std.exp()), cost


class GraphAttention(nn.Module):
    """Each node attends to its neighbours (GAT); the heads are joined, or averaged at the end."""

    def __init__(self, inputs: int, outputs: int, heads: int, joins: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.joins, self.dropout = heads, joins, nn.Dropout(dropout)
        self.values = nn.Linear(inputs, heads * outputs, bias=False)
        self.target, self.source = (nn.Parameter(torch.empty(heads, outputs)) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(heads * outputs if joins else outputs))
        for weight in (self.values.weight, self.target, self.source):
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor, neighbours: Tensor) -> Tensor:
        """(N, inputs) and (N, k) to (N, outputs)."""
        values = self.values(self.dropout(x)).unflatten(1, (self.heads, -1))
        source, target = (values * self.source).sum(2), (values * self.target).sum(2)
        shares = functional.leaky_relu(target[:, None] + source[neighbours], 0.2).softmax(1)
        found = (self.dropout(shares)[..., None] * values[neighbours]).sum(1)
        return (found.flatten(1) if self.joins else found.mean(1)) + self.bias


class GAT(nn.Module):
    """Two such layers."""

    def __init__(self, inputs: int, outputs: int, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.first = GraphAttention(inputs, width, heads, True, dropout)
        self.last = GraphAttention(heads * width, outputs, 1, False, dropout)

    def forward(self, x: Tensor, neighbours: Tensor) -> Tensor:
        """Logits of all nodes."""
        return self.last(functional.elu(self.first(x, neighbours)), neighbours)


class TimedBlock(nn.Module):
    """Two convolutions beside a skip, told the time between them."""

    def __init__(self, width: int, told: int) -> None:
        super().__init__()
        self.first, self.last = (
            nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(2)
        )
        self.time = nn.Linear(told, width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """The same shape as x."""
        return x + self.last(self.first(x) + self.time(time)[:, :, None, None])


class UNet(nn.Module):
    """Predicts the noise in pictures, told how much there is: down to a quarter of the side and up again."""

    def __init__(self, channels: int, width: int, told: int = 32) -> None:
        super().__init__()
        wide = 2 * width
        self.told = nn.Sequential(nn.Linear(16, told), nn.SiLU(), nn.Linear(told, told), nn.SiLU())
        self.enter = nn.Conv2d(channels, width, 3, padding=1)
        self.down = nn.ModuleList([nn.Conv2d(width, wide, 3, 2, 1), nn.Conv2d(wide, wide, 3, 2, 1)])
        self.blocks = nn.ModuleList(TimedBlock(size, told) for size in (width, wide, wide, wide, width))
        self.up = nn.ModuleList([nn.Conv2d(2 * wide, wide, 1), nn.Conv2d(wide + width, width, 1)])
        self.leave = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, channels, 3, padding=1))
        for weight in self.leave[2].parameters():
            nn.init.zeros_(weight)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """The noise; time is from 0 to 1."""
        angles = time[:, None] * torch.logspace(0, 2, 8)
        told = self.told(torch.cat([angles.sin(), angles.cos()], dim=1))
        large = self.blocks[0](self.enter(x), told)
        middle = self.blocks[1](self.down[0](large), told)
        small = self.blocks[2](self.down[1](middle), told)
        middle = self.blocks[3](self.up[0](torch.cat([_doubled(small), middle], dim=1)), told)
        return self.leave(self.blocks[4](self.up[1](torch.cat([_doubled(middle), large], dim=1)), told))


def _doubled(x: Tensor) -> Tensor:
    return functional.interpolate(x, scale_factor=2.0)


def digits_cnn(width: int, hidden: int) -> nn.Module:
    """As in PyTorch's examples, narrower."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3), nn.ReLU(), nn.Conv2d(width, 2 * width, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(288 * width, hidden), nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden, 10),
    )  # fmt: skip


def masked(symbols: int, length: int, width: int, depth: int) -> nn.Module:
    """A transformer that sees both sides; its last symbol is the mask, and its places begin as sines and cosines."""
    blocks = [transformer_block(width, causal=False) for _ in range(depth)]
    first = Embedded(symbols + 1, length, width)
    angles = torch.arange(length)[:, None] * torch.logspace(0, -3, width // 2)
    with torch.no_grad():
        first.places.weight.copy_(torch.cat([angles.sin(), angles.cos()], dim=1))
    return nn.Sequential(first, *blocks, nn.LayerNorm(width), nn.Linear(width, symbols))


def doubler(channels: int, width: int) -> nn.Module:
    """Doubles the side of pictures (ESPCN): convolutions, then a shuffle of channels into places."""
    return nn.Sequential(
        nn.Conv2d(channels, 2 * width, 5, padding=2), nn.Tanh(),
        nn.Conv2d(2 * width, width, 3, padding=1), nn.Tanh(),
        nn.Conv2d(width, 4 * channels, 3, padding=1), nn.PixelShuffle(2),
    )  # fmt: skip


class Fourier(nn.Module):
    """An MLP on sines and cosines of places, whose frequencies are drawn once and the same for everybody."""

    def __init__(self, frequencies: int, spread: float, width: int, depth: int, outputs: int) -> None:
        super().__init__()
        drawn = torch.randn(2, frequencies, generator=torch.Generator().manual_seed(0))
        self.frequencies: Tensor
        self.register_buffer("frequencies", 2 * math.pi * spread * drawn)
        sizes = [2 * frequencies, *[width] * depth]
        hidden = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
        self.rest = nn.Sequential(*hidden, nn.Linear(width, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(B, 2) from 0 to 1 to (B, outputs)."""
        angles = x @ self.frequencies
        return self.rest(torch.cat([angles.sin(), angles.cos()], dim=1))


class PointNet(nn.Module):
    """The same layers for each point, then the largest of each number over the points."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.points = nn.Sequential(*_normed(2, width), *_normed(width, 2 * width), *_normed(2 * width, 4 * width))
        self.rest = nn.Sequential(*_normed(4 * width, 2 * width), nn.Dropout(0.3), nn.Linear(2 * width, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(B, points, 2) to (B, outputs)."""
        return self.rest(self.points(x.flatten(0, 1)).unflatten(0, x.shape[:2]).amax(1))


def _normed(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]


class RowReader(nn.Module):
    """A GRU that reads rows, and answers at the end."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.inner, self.output = nn.GRU(inputs, width, batch_first=True), nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(B, rows, inputs) to (B, outputs)."""
        return self.output(self.inner(x)[0][:, -1])


class ChannelNorm(nn.LayerNorm):
    """A layer norm over channels, which come second."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape as x."""
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class Scaled(nn.Module):
    """Each channel times a number that begins small."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((width, 1, 1), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape as x."""
        return self.scale * x


def convnext(channels: int, outputs: int, width: int, depth: int) -> nn.Module:
    """ConvNeXt with two stages of `depth` blocks."""

    def block(width: int) -> nn.Module:
        wide = 4 * width
        across = [nn.Conv2d(width, width, 7, padding=3, groups=width), ChannelNorm(width)]
        return Residual(*across, nn.Conv2d(width, wide, 1), nn.GELU(), nn.Conv2d(wide, width, 1), Scaled(width))

    first = [nn.Conv2d(channels, width, 2, 2), ChannelNorm(width), *[block(width) for _ in range(depth)]]
    second = [ChannelNorm(width), nn.Conv2d(width, 2 * width, 2, 2), *[block(2 * width) for _ in range(depth)]]
    model = nn.Sequential(
        *first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(2 * width), nn.Linear(2 * width, outputs)
    )
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model
