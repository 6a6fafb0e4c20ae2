"""One training to learn a schedule from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mlrsnet_lab import checks
from mlrsnet_lab.horizon.data import Data
from mlrsnet_lab.horizon.seeds import generator
from mlrsnet_lab.horizon.updates import Update, find

ModelFactory = Callable[[Data], nn.Module]

HELD_OUT_PART = 5
"""Without `train` and `val`, one example in this many is held out."""


@dataclass(frozen=True, eq=False)
class Task:
    """The data, model, optimizer and length of one training.

    Tasks of a generation train side by side if they share data, model, optimizer, batch size, number of held-out examples,
    label smoothing, clip norm and number of steps. Others train one after another.

    Args:
        data: where the examples come from.
        model: a function of the data that returns a network. It is called under `seed`.
        total_steps: how many steps it takes.
        batch_size: examples per step.
        train, val: indices into the data, without overlap. If None, a fifth of the examples of `classes` is held out.
        classes: train on these classes only, renamed 0, 1, ...; None for all. The network's other outputs are masked.
        optimizer: `sgd`, `sgdm`, `adam`, `adamw`, or a `horizon.SGD` or `horizon.Adam`.
        weight_decay: of the optimizer.
        label_noise: share of the training labels replaced by random ones; not for sequences.
        seed: of initial weights, batch order, mirroring and label noise.
        label_smoothing: of the training loss.
        clip_norm: largest norm of the gradient; None for no limit.
    """

    data: Data
    model: ModelFactory
    total_steps: int
    batch_size: int
    train: Tensor | None = field(default=None, repr=False)
    val: Tensor | None = field(default=None, repr=False)
    classes: Sequence[int] | None = None
    optimizer: str | Update = "sgd"
    weight_decay: float = 0.0
    label_noise: float = 0.0
    seed: int = 0
    label_smoothing: float = 0.0
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "optimizer", find(self.optimizer))
        self._check_numbers()
        self._check_classes()
        if (self.train is None) != (self.val is None):
            raise ValueError(
                "train and val must be given together, or neither: then a fifth of the examples is held out"
            )
        if self.train is None:
            self._split()
        self._check_examples()

    @property
    def num_classes(self) -> int:
        """The number of classes the task tells apart, or of numbers that it predicts."""
        return self.data.num_classes if self.classes is None else len(self.classes)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Tasks of one kind share a step. If they also have equal lengths, they train side by side."""
        assert self.val is not None
        num_held_out = len(self.val)
        return (
            self.data,
            self.model,
            self.optimizer,
            self.batch_size,
            num_held_out,
            self.label_smoothing,
            self.clip_norm,
        )

    def labels(self) -> Tensor:
        """(N,) targets as the task names them, with its label noise; 0 for classes that it does not have."""
        names = torch.zeros(self.data.num_classes, dtype=torch.long)
        for new, old in enumerate(self.classes or range(self.data.num_classes)):
            names[old] = new
        labels = names.to(self.data.targets.device)[self.data.targets]
        if self.label_noise:
            assert self.train is not None
            random = generator("label noise", self.seed)
            noisy = self.train[torch.rand(len(self.train), generator=random) < self.label_noise]
            drawn = torch.randint(self.num_classes, labels[noisy].shape, generator=random)
            labels[noisy] = drawn.to(labels.device)
        return labels

    def fresh_model(self) -> nn.Module:
        """The network with initial weights from `seed`. The user's random state is untouched."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            return self.model(self.data)

    def _check_numbers(self) -> None:
        checks.whole_number("total_steps", self.total_steps)
        checks.whole_number("batch_size", self.batch_size)
        checks.whole_number("seed", self.seed, 0)
        checks.below_one("label_noise", self.label_noise)
        checks.below_one("label_smoothing", self.label_smoothing)
        checks.not_negative("weight_decay", self.weight_decay)
        if self.clip_norm is not None:
            checks.positive("clip_norm", self.clip_norm)

    def _check_classes(self) -> None:
        has_labels = not self.data.is_sequence and not self.data.is_regression
        if self.classes is not None and not (has_labels and _are_classes(self.classes, self.data.num_classes)):
            raise ValueError(
                f"classes must be two or more different classes from 0 to {self.data.num_classes - 1}, and the data must have "
                f"one class per example, got {self.classes!r}"
            )
        for name in ("label_noise", "label_smoothing"):
            allowed = has_labels or (name == "label_smoothing" and self.data.is_sequence)
            if getattr(self, name) and not allowed:
                kind = "numbers to predict" if self.data.is_regression else "sequences"
                raise ValueError(
                    f"{name} needs one class per example, got {getattr(self, name)} with {kind}: leave it out"
                )

    def _split(self) -> None:
        """Hold out a random fifth of the examples of the task's classes."""
        own = torch.arange(len(self.data.inputs))[self._has_class()]
        shuffled = own[torch.randperm(len(own), generator=generator("split", self.seed))]
        held_out = max(1, len(own) // HELD_OUT_PART)
        object.__setattr__(self, "val", shuffled[:held_out])
        object.__setattr__(self, "train", shuffled[held_out:])

    def _has_class(self) -> Tensor:
        """(N,) whether an example belongs to one of the task's classes."""
        targets = self.data.targets.cpu()
        if self.classes is None:
            return torch.ones(len(targets), dtype=torch.bool)
        return torch.isin(targets, torch.tensor(list(self.classes)))

    def _check_examples(self) -> None:
        assert self.train is not None
        assert self.val is not None
        count, has_class = len(self.data.inputs), self._has_class()
        for name, index in (("train", self.train), ("val", self.val)):
            if not len(index) or int(index.min()) < 0 or int(index.max()) >= count:
                raise ValueError(f"{name} must be indices from 0 to {count - 1}, at least one, got {index!r}")
            if not has_class[index].all():
                raise ValueError(f"{name} must be examples of the classes {self.classes}, got some of other classes")
        is_trained = torch.zeros(count, dtype=torch.bool)
        is_trained[self.train] = True
        if is_trained[self.val].any():
            raise ValueError(f"val must have no example of train, got {int(is_trained[self.val].sum())} of them")
        if len(self.train) < self.batch_size:
            raise ValueError(
                f"batch_size must be at most the number of training examples, {len(self.train)}; got {self.batch_size}"
            )


def _are_classes(classes: Sequence[int], num_classes: int) -> bool:
    known = all(isinstance(c, int) and 0 <= c < num_classes for c in classes)
    return known and len(set(classes)) == len(classes) >= 2
