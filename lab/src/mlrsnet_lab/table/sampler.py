"""Trainings of the table's kinds, to learn schedules from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mlrsnet_lab.horizon.seeds import generator
from mlrsnet_lab.horizon.task import Task
from mlrsnet_lab.table.kinds import FAMILIES, draw

FIRST = 1_000_000
"""Numbers of kinds begin here: the rows of a table have smaller ones, so that it can judge what was learned."""


@dataclass(frozen=True)
class KindSampler:
    """Draws kinds of the table, each with its own data, network, optimizer and horizon.

    Args:
        horizons: smallest and largest number of steps.
        families: see `kinds.FAMILIES`.
        root: where the data is.

    >>> KindSampler((50, 60), ("mlp",)).numbers(seed=3, count=2) == KindSampler((50, 60), ("mlp",)).numbers(seed=3, count=2)
    True
    """

    horizons: tuple[int, int] = (50, 3000)
    families: Sequence[str] = FAMILIES
    root: Path | None = None

    def numbers(self, seed: int, count: int) -> list[int]:
        """The kinds of a seed."""
        drawn = torch.randint(2**31, (count,), generator=generator("kinds", seed))
        return [FIRST + number for number in drawn.tolist()]

    def sample(self, seed: int, count: int) -> list[Task]:
        """See `horizon.Sampler`."""
        return [
            draw(number, horizons=self.horizons, families=self.families).task(self.root)
            for number in self.numbers(seed, count)
        ]
