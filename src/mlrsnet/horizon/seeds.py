"""Seeds for everything random, each from the words that say what it is for."""

import hashlib

import torch


def seed_from(*words: int | str) -> int:
    """32 bits, all that torch's generator for the CPU looks at: 0 and 2^32 would be the same seed to it.

    >>> seed_from("tasks", 0) != seed_from("tasks", 2**32)
    True
    """
    return int.from_bytes(hashlib.blake2b(repr(words).encode(), digest_size=4).digest(), "big")


def generator(*words: int | str) -> torch.Generator:
    """A generator of its own for these words."""
    return torch.Generator().manual_seed(seed_from(*words))
