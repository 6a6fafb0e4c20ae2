"""The number formats a population can train in."""

import torch

from mlrsnet import _check

PRECISIONS = ("fp32", "bf16", "fp64")
"""`bf16` is autocast: weights, losses and optimizer state stay in float32. `fp64` is double precision throughout."""


def float_type(precision: str) -> torch.dtype:
    """The type of weights, losses, LRs and optimizer state.

    >>> float_type("bf16")
    torch.float32
    """
    is_double = _check.one_of("precision", precision, PRECISIONS) == "fp64"
    return torch.float64 if is_double else torch.float32


def at_least_single(values: torch.Tensor) -> torch.Tensor:
    """Half-precision values as float32; float32 and float64 as they are."""
    return values.float() if values.dtype.itemsize < 4 else values
