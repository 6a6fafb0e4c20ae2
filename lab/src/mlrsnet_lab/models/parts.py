"""What the networks share."""

import math
from collections.abc import Iterator
from typing import TypeAlias

import torch
from torch import Tensor, nn

from mlrsnet_lab import checks

Shape: TypeAlias = tuple[int, int, int]
"""Channels, height, width of a picture."""

State: TypeAlias = tuple[Tensor, ...]
"""Memory between two pieces of a text; () for a model without memory."""


class LanguageModel(nn.Module):
    """Predicts the next token from tokens and the memory of earlier ones."""

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits (T, B, vocabulary) of tokens (T, B), int64, and the differentiable state after them."""
        raise NotImplementedError

    def initial_state(self, batch: int, device: torch.device | str) -> State:
        """The state before any token, for `batch` texts side by side."""
        raise NotImplementedError


def picture_shape(shape: Shape) -> Shape:
    """Return (C, H, W) as ints, or raise."""
    try:
        channels, height, width = (checks.whole_number("each size in shape", size) for size in shape)
    except (TypeError, ValueError):
        raise ValueError(
            f"shape must be three whole numbers >= 1, (channels, height, width), got {shape!r}: leave out the batch"
        ) from None
    return channels, height, width


NORMS: dict[str, type[nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


def normalisation(kind: str, features: int) -> list[nn.Module]:
    """A layer that normalises features, or none."""
    checks.one_of("norm", kind, ("none", *NORMS))
    return [] if kind == "none" else [NORMS[kind](features)]


def dropout_rate(dropout: float) -> float:
    """Return the fraction of outputs to drop, in [0, 1), or raise."""
    return checks.below_one("dropout", dropout, "0 drops nothing")


def torchs_own(model: nn.Module) -> None:
    """Draw every convolution as `nn.Conv2d` does: uniform, of variance 1 / (3 fan_in)."""
    for layer in _convolutions(model):
        layer.reset_parameters()


def xavier(model: nn.Module) -> None:
    """Draw the weights of every convolution as the authors' meta-training does: Xavier-uniform with gain sqrt(2).

    Their variance is 4 / (fan_in + fan_out): that of He et al. where both are alike.
    """
    for layer in _convolutions(model):
        nn.init.xavier_uniform_(layer.weight, gain=math.sqrt(2))


def _convolutions(model: nn.Module) -> Iterator[nn.Conv2d]:
    return (layer for layer in model.modules() if isinstance(layer, nn.Conv2d))
