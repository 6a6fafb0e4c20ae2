"""Sounds with a pitch: the kind that CREPE was trained for, and one that it finds hard.

Old: partials whose strength falls as 1 / k, with a little noise. New: strings as stiff as a piano's, without their two lowest
partials, in vibrato, with as much noise as sound.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

RATE, LENGTH, PARTIALS = 16_000, 1024, 24
CENTS = 1997.379 + 20 * torch.arange(360)
"""The 360 pitches, above 10 Hz."""


class Sounds(NamedTuple):
    """inputs: (n, 1024). cents: their pitches."""

    inputs: Tensor
    cents: Tensor


def draw(kind: str, number: int, seed: int) -> Sounds:
    """Sounds of a kind, `old` or `new`, drawn anew for each seed."""
    draws = torch.Generator().manual_seed(seed)
    is_new = kind == "new"
    cents = 1200 * torch.log2(8.0 * 12.0 ** torch.rand(number, 1, 1, generator=draws))  # 80 to 960 Hz
    k = torch.arange(1, PARTIALS + 1).view(1, -1, 1)
    pitch = cents + is_new * _vibrato(number, draws)
    stiffness = is_new * 4e-4 * torch.rand(number, 1, 1, generator=draws)
    frequency = 10 * 2 ** (pitch / 1200) * k * (1 + stiffness * k**2).sqrt()
    strength = (0.5 + torch.rand(number, PARTIALS, 1, generator=draws)) / k * (frequency < 7000) * (k > 2 * is_new)
    phase = 2 * math.pi * (frequency.cumsum(-1) / RATE + torch.rand(number, PARTIALS, 1, generator=draws))
    clean = (strength * phase.sin()).sum(1)
    noise = torch.randn(number, LENGTH, generator=draws) * (1.0 if is_new else 0.05)
    sounds = clean / clean.std(-1, keepdim=True) + noise
    return Sounds((sounds - sounds.mean(-1, keepdim=True)) / sounds.std(-1, keepdim=True), cents.flatten())


def _vibrato(number: int, draws: torch.Generator) -> Tensor:
    """(number, 1, 1024) cents: up to 40 up and down, five times a second, around a mean of 0 in each sound."""
    depth, phase = 40 * torch.rand(2, number, 1, 1, generator=draws)
    swing = depth * (2 * math.pi * (5 * torch.arange(LENGTH) / RATE + phase)).sin()
    return swing - swing.mean(-1, keepdim=True)


def targets(cents: Tensor) -> Tensor:
    """What CREPE learns: 1 at the pitch, less around it."""
    return torch.exp(-((CENTS - cents[:, None]) ** 2) / (2 * 25**2))


def correct(logits: Tensor, cents: Tensor) -> Tensor:
    """Whether the weighted mean around the highest output is at most 50 cents off.

    >>> cents = torch.tensor([4000.0, 5000.0])
    >>> correct(targets(cents).logit(1e-6), cents + torch.tensor([30.0, 70.0])).tolist()
    [True, False]
    """
    near = (torch.arange(360) - logits.argmax(1, keepdim=True)).abs() <= 4
    weights = logits.sigmoid() * near
    return ((weights * CENTS).sum(1) / weights.sum(1) - cents).abs() <= 50
