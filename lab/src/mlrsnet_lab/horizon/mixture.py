"""Tasks of many kinds, a few kinds per generation."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mlrsnet_lab import checks
from mlrsnet_lab.horizon.sampler import Sampler
from mlrsnet_lab.horizon.seeds import seed_from
from mlrsnet_lab.horizon.task import Task


@dataclass(frozen=True)
class Mixture:
    """Draws the tasks of a generation from a few of its samplers.

    Args:
        kinds: samplers. Each should draw tasks that train side by side.
        at_once: the number of samplers a generation draws from.

    >>> from torch import nn
    >>> from mlrsnet_lab.horizon import Data, TaskSampler
    >>> data = Data(torch.randn(99, 4), torch.arange(99) % 3)
    >>> kinds = [TaskSampler([data], [lambda d: nn.Linear(4, 3)], optimizers=(o,), val_size=20) for o in ("sgd", "adam")]
    >>> len(Mixture(kinds).sample(seed=0, count=4))
    4
    """

    kinds: Sequence[Sampler]
    at_once: int = 2

    def __post_init__(self) -> None:
        if not self.kinds or not all(callable(getattr(kind, "sample", None)) for kind in self.kinds):
            raise ValueError(f"kinds must be one or more samplers, got {self.kinds!r}: pass TaskSamplers")
        checks.whole_number("at_once", self.at_once)

    def sample(self, seed: int, count: int) -> list[Task]:
        """Draw `count` tasks, divided evenly among the chosen samplers."""
        random = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(self.kinds), generator=random)[: min(self.at_once, count)].tolist()
        counts = [len(range(first, count, len(chosen))) for first in range(len(chosen))]
        return [
            task
            for kind, number in zip(chosen, counts, strict=True)
            for task in self.kinds[kind].sample(seed_from("kind", kind, seed), number)
        ]
