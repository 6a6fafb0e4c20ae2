"""Where the tasks of a generation come from. A `Task` checks its own settings when it is drawn."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from mlrsnet_lab import checks
from mlrsnet_lab.horizon.data import Data
from mlrsnet_lab.horizon.seeds import seed_from
from mlrsnet_lab.horizon.task import ModelFactory, Task
from mlrsnet_lab.horizon.updates import Update

T = TypeVar("T")

CHOICES = (
    "data",
    "models",
    "batch_sizes",
    "optimizers",
    "weight_decays",
    "num_classes",
    "label_noises",
    "label_smoothings",
)
"""The arguments of a `TaskSampler` that are lists to choose from."""


class Sampler(Protocol):
    """Anything that draws the tasks of a generation: the same tasks for the same seed."""

    def sample(self, seed: int, count: int) -> list[Task]:
        """Draw `count` tasks."""


@dataclass(frozen=True)
class TaskSampler:
    """Draws tasks from lists and ranges of settings. A subclass can override `draw` to vary more.

    The tasks of one generation share everything that lets them train side by side: data, model, optimizer, number of
    steps, batch size, label smoothing. Classes, amount of data, weight decay, label noise and seed differ.

    Args:
        data: one `Data` is chosen.
        models: one function of the data that returns a network is chosen.
        horizons: smallest and largest number of steps, drawn uniformly in log(steps).
        batch_sizes, optimizers, weight_decays, label_noises, label_smoothings: one of each is chosen.
        num_classes: one is chosen, and that many random classes; None for all classes.
        train_sizes: smallest and largest number of training examples, drawn uniformly in the logarithm; None for all.
        val_size: held-out examples of a task.
        clip_norm: of all tasks.

    >>> from torch import nn
    >>> data = Data(torch.randn(200, 4), torch.arange(200) % 5)
    >>> tasks = TaskSampler([data], [lambda data: nn.Linear(4, data.num_classes)], val_size=20, num_classes=(2, None))
    >>> drawn = tasks.sample(seed=2, count=3)
    >>> len({task.total_steps for task in drawn}), {task.num_classes for task in drawn} <= {2, 5}
    (1, True)
    """

    data: Sequence[Data]
    models: Sequence[ModelFactory]
    horizons: tuple[int, int] = (100, 400)
    batch_sizes: Sequence[int] = (32,)
    optimizers: Sequence[str | Update] = ("sgd",)
    weight_decays: Sequence[float] = (5e-4,)
    num_classes: Sequence[int | None] = (None,)
    train_sizes: tuple[int, int] | None = None
    val_size: int = 256
    label_noises: Sequence[float] = (0.0,)
    label_smoothings: Sequence[float] = (0.0,)
    clip_norm: float | None = None
    _by_class: dict[Data, list[Tensor]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in CHOICES:
            choices = getattr(self, name)
            if not isinstance(choices, list | tuple) or not choices:
                raise ValueError(f"{name} must be a list of one or more to choose from, got {choices!r}")
        _check_limits("horizons", self.horizons)
        if self.train_sizes is not None:
            _check_limits("train_sizes", self.train_sizes)
        checks.whole_number("val_size", self.val_size)

    def sample(self, seed: int, count: int) -> list[Task]:
        """Draw the tasks of one generation."""
        random = torch.Generator().manual_seed(seed)
        shared = self.shared(random)
        return [self.draw(shared, random) for _ in range(count)]

    def shared(self, random: torch.Generator) -> dict[str, Any]:
        """Draw the settings that all tasks of a generation share."""
        return {
            "data": pick(self.data, random),
            "model": pick(self.models, random),
            "total_steps": log_uniform(*self.horizons, random),
            "batch_size": pick(self.batch_sizes, random),
            "optimizer": pick(self.optimizers, random),
            "label_smoothing": pick(self.label_smoothings, random),
            "clip_norm": self.clip_norm,
        }

    def draw(self, shared: dict[str, Any], random: torch.Generator) -> Task:
        """Draw one task with these shared settings."""
        data: Data = shared["data"]
        classes = self._draw_classes(data, random)
        examples = self._examples(data, classes)
        examples = examples[torch.randperm(len(examples), generator=random)]
        if len(examples) < self.val_size + shared["batch_size"]:
            raise ValueError(
                f"val_size must leave a batch to train on: {data.name} has {len(examples)} examples of the classes "
                f"{classes or 'all'}, got val_size={self.val_size} and batch_size={shared['batch_size']}"
            )
        left = len(examples) - self.val_size
        smallest, largest = self.train_sizes or (left, left)
        size = min(left, max(shared["batch_size"], log_uniform(smallest, largest, random)))
        return Task(
            **shared,
            classes=classes,
            val=examples[: self.val_size],
            train=examples[self.val_size : self.val_size + size],
            weight_decay=pick(self.weight_decays, random),
            label_noise=pick(self.label_noises, random),
            seed=int(torch.randint(2**31, (), generator=random)),
        )

    def _draw_classes(self, data: Data, random: torch.Generator) -> list[int] | None:
        """Random classes; None for all."""
        wanted = pick(self.num_classes, random)
        if wanted is None or wanted >= data.num_classes:
            return None
        return torch.randperm(data.num_classes, generator=random)[:wanted].tolist()

    def _examples(self, data: Data, classes: list[int] | None) -> Tensor:
        """Indices of the examples of these classes."""
        if classes is None:
            return torch.arange(len(data.inputs))
        if data not in self._by_class:
            targets = data.targets.cpu()
            self._by_class[data] = [(targets == c).nonzero().squeeze(1) for c in range(data.num_classes)]
        return torch.cat([self._by_class[data][c] for c in classes])


@dataclass(frozen=True)
class Mixture:
    """Draws the tasks of a generation from a few of its samplers.

    Args:
        kinds: samplers. Each should draw tasks that train side by side.
        at_once: the number of samplers a generation draws from.

    >>> from torch import nn
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


def pick(choices: Sequence[T], random: torch.Generator) -> T:
    """One of the choices, all equally likely."""
    return choices[int(torch.randint(len(choices), (), generator=random))]


def log_uniform(smallest: float, largest: float, random: torch.Generator) -> int:
    """A whole number whose logarithm is uniform between the two logarithms."""
    share = float(torch.rand((), generator=random))
    return round(math.exp(math.log(smallest) + share * (math.log(largest) - math.log(smallest))))


def _check_limits(name: str, limits: Any) -> None:
    if not isinstance(limits, list | tuple) or len(limits) != 2:
        raise ValueError(f"{name} must be (smallest, largest), got {limits!r}")
    smallest, largest = (checks.whole_number(f"each of {name}", limit) for limit in limits)
    if smallest > largest:
        raise ValueError(f"{name} must be (smallest, largest), got {limits!r}")
