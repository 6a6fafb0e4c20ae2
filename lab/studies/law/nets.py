"""Small networks of the table, beside those of the lab."""

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

NORMS = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


def mlp(
    inputs: int, outputs: int, width: int, depth: int, norm: str = "none", act: type[nn.Module] = nn.ReLU
) -> nn.Module:
    """`depth` hidden layers."""
    layers: list[nn.Module] = [nn.Flatten()]
    for before in [inputs, *[width] * (depth - 1)]:
        layers += [nn.Linear(before, width), NORMS[norm](width), act()]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape as x."""
        return x + self.inner(x)


def convolved(
    before: int, after: int, stride: int = 1, groups: int = 1, norm: bool = True, side: int = 3
) -> list[nn.Module]:
    """A convolution and its norm."""
    layer = nn.Conv2d(before, after, side, stride, side // 2, groups=groups, bias=not norm)
    return [layer, nn.BatchNorm2d(after) if norm else nn.Identity()]


def cnn(channels: int, outputs: int, width: int, depth: int, norm: bool) -> nn.Module:
    """Convolutions, every second one with stride 2."""
    layers: list[nn.Module] = []
    for place in range(depth):
        layers += [*convolved(width if place else channels, width, 1 + place % 2, norm=norm), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, outputs))


def resnet(channels: int, outputs: int, width: int, depth: int, depthwise: bool = False) -> nn.Module:
    """Residual blocks with batch norm; plain ones, or MobileNet's."""

    def block() -> nn.Module:
        if depthwise:
            wide = 4 * width
            inner = [*convolved(width, wide, side=1), nn.ReLU(), *convolved(wide, wide, groups=wide), nn.ReLU()]
            return Residual(*inner, *convolved(wide, width, side=1))
        return nn.Sequential(Residual(*convolved(width, width), nn.ReLU(), *convolved(width, width)), nn.ReLU())

    first = [*convolved(channels, width, 2), nn.ReLU()]
    return nn.Sequential(
        *first, *[block() for _ in range(depth)], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, outputs)
    )


class Attention(nn.Module):
    """Self-attention."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, width) to the same."""
        q, k, v = self.inputs(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.output(
            functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)
        )


def transformer_block(width: int, causal: bool) -> nn.Module:
    """Attention and two linear layers, each after a layer norm."""
    wide = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    return nn.Sequential(Residual(nn.LayerNorm(width), Attention(width, max(1, width // 16), causal)), Residual(wide))


class Embedded(nn.Module):
    """Symbols and their places as vectors."""

    def __init__(self, symbols: int, length: int, width: int) -> None:
        super().__init__()
        self.symbols, self.places = nn.Embedding(symbols, width), nn.Embedding(length, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T) to (B, T, width)."""
        return self.symbols(x) + self.places.weight[: x.shape[1]]


def gpt(symbols: int, length: int, width: int, depth: int, init: str) -> nn.Module:
    """A language model; `gpt2` draws all matrices from N(0, 0.02)."""
    blocks = [transformer_block(width, causal=True) for _ in range(depth)]
    model = nn.Sequential(Embedded(symbols, length, width), *blocks, nn.LayerNorm(width), nn.Linear(width, symbols))
    if init == "gpt2":
        for weight in model.parameters():
            if weight.ndim > 1:
                nn.init.normal_(weight, std=0.02)
    return model


class Recurrent(nn.Module):
    """A language model with an LSTM or a GRU."""

    def __init__(self, symbols: int, width: int, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.symbols, self.inner, self.output = (
            nn.Embedding(symbols, width),
            kind(width, width, batch_first=True),
            nn.Linear(width, symbols),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the next symbols."""
        return self.output(self.inner(self.symbols(x))[0])


class Patches(nn.Module):
    """A picture as a row of patches, with their places."""

    def __init__(self, channels: int, side: int, patch: int, width: int) -> None:
        super().__init__()
        self.patch, self.places = (
            nn.Conv2d(channels, width, patch, patch),
            nn.Parameter(0.02 * torch.randn((side // patch) ** 2, width)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, patches, width)."""
        return self.patch(x).flatten(2).transpose(1, 2) + self.places


class Mean(nn.Module):
    """The mean over places."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, width) to (B, width)."""
        return x.mean(1)


class Transposed(nn.Module):
    """A network on the other axis."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, width) to the same."""
        return self.inner(x.transpose(1, 2)).transpose(1, 2)


def vit(channels: int, side: int, outputs: int, width: int, depth: int, mixer: bool = False) -> nn.Module:
    """A vision transformer, or an MLP-mixer, on patches."""
    patch = 2 if side <= 8 else side // 4 if side % 4 == 0 else 2
    places = (side // patch) ** 2

    def mixed() -> nn.Module:
        across = Transposed(nn.Linear(places, 2 * places), nn.GELU(), nn.Linear(2 * places, places))
        along = (nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        return nn.Sequential(Residual(nn.LayerNorm(width), across), Residual(*along))

    blocks = [mixed() if mixer else transformer_block(width, causal=False) for _ in range(depth)]
    return nn.Sequential(
        Patches(channels, side, patch, width), *blocks, nn.LayerNorm(width), Mean(), nn.Linear(width, outputs)
    )


class Bag(nn.Module):
    """The mean vector of some symbols, then an MLP."""

    def __init__(self, symbols: int, outputs: int, width: int, depth: int) -> None:
        super().__init__()
        self.bag, self.rest = nn.EmbeddingBag(symbols, width), mlp(width, outputs, width, depth)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T) to (B, outputs)."""
        return self.rest(self.bag(x))


class VAE(nn.Module):
    """A variational autoencoder of flat pictures, or a plain one."""

    def __init__(self, inputs: int, width: int, code: int, variational: bool) -> None:
        super().__init__()
        self.variational = variational
        self.into = nn.Sequential(
            nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, code * (1 + variational))
        )
        self.out = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, inputs))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The picture again, and what the code costs for each one."""
        code = self.into(x)
        if not self.variational:
            return self.out(code), code.new_zeros(len(x))
        mean, log_std = code.chunk(2, dim=1)
        noise = torch.randn_like(mean) if self.training else torch.zeros_like(mean)
        cost = 0.5 * (mean.square() + (2 * log_std).exp() - 1 - 2 * log_std).sum(1)
        return self.out(mean + noise * log_std.exp()), cost


class Denoiser(nn.Module):
    """Predicts the noise in flat pictures, told how much there is."""

    def __init__(self, inputs: int, width: int, depth: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs + 2, width), nn.Linear(width, inputs)
        self.blocks = nn.Sequential(
            *[
                Residual(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
                for _ in range(depth)
            ]
        )

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """The noise."""
        told = torch.stack([torch.sin(time * math.pi / 2), torch.cos(time * math.pi / 2)], dim=1)
        return self.last(self.blocks(self.first(torch.cat([x, told], dim=1))))


class Graph(nn.Module):
    """A graph convolutional network: every layer takes means over neighbours."""

    def __init__(self, inputs: int, outputs: int, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        sizes = [inputs, *[width] * (depth - 1), outputs]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, neighbours: Tensor) -> Tensor:
        """Logits of all nodes."""
        for place, layer in enumerate(self.layers):
            x = neighbours @ layer(self.dropout(x))
            x = x.relu() if place + 1 < len(self.layers) else x
        return x


class LowRank(nn.Module):
    """A linear layer that stands still, and an adapter of low rank beside it."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / math.sqrt(layer.in_features))
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Both added."""
        return self.layer(x) + 2 * (x @ self.down.T @ self.up.T)


def with_adapters(model: nn.Module, rank: int) -> nn.Module:
    """Freeze a model, and put adapters beside all linear layers of its blocks."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, nn.Linear) and not isinstance(module, LowRank):
                setattr(module, name, LowRank(layer, rank))
    return model
