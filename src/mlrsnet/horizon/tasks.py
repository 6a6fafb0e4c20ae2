"""Small trainings to learn a schedule from: what a task is, and where a generation's tasks come from."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from mlrsnet import _check
from mlrsnet.horizon.seeds import generator
from mlrsnet.horizon.updates import Update, find

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


@dataclass(frozen=True, eq=False)
class Data:
    """Examples to choose trainings from.

    Args:
        inputs: (N, ...) as a model takes them, B at a time; integers for text. A tensor, or an array of numpy's.
        targets: (N,) classes, or (N, L) one a position for sequences.
        num_classes: found from the targets if 0.
        name: goes into the schedule's card.
        mirrored: whether a picture's mirror image means the same; then each is mirrored every other time.

    >>> Data(torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])).num_classes
    3
    """

    inputs: Tensor = field(repr=False)
    targets: Tensor = field(repr=False)
    num_classes: int = 0
    name: str = "data"
    mirrored: bool = False

    def __post_init__(self) -> None:
        for name in ("inputs", "targets"):
            object.__setattr__(self, name, _tensor(name, getattr(self, name)))
        if len(self.inputs) != len(self.targets) or not len(self.inputs):
            raise ValueError(
                f"inputs and targets must be as many, and at least one; got {len(self.inputs)} and {len(self.targets)}"
            )
        if self.targets.is_floating_point():
            raise ValueError(f"targets must be classes, whole numbers from 0, got {self.targets.dtype}: call .long()")
        if int(self.targets.min()) < 0:
            raise ValueError(f"targets must be classes, whole numbers from 0, got {int(self.targets.min())}")
        if self.inputs.is_floating_point() and not torch.isfinite(self.inputs).all():
            raise ValueError("inputs must be finite, got NaN or infinite values: clean the data first")
        if self.inputs.dtype == torch.uint8:
            raise ValueError("inputs must be floats, or long integers for text, got uint8: normalise pictures first")
        if self.inputs.dtype in (torch.float64, torch.float16, torch.bfloat16):
            object.__setattr__(self, "inputs", self.inputs.float())  # as the models are
        found = int(self.targets.max()) + 1
        object.__setattr__(self, "num_classes", self.num_classes or found)
        if _check.whole_number("num_classes", self.num_classes, 2) < found:
            raise ValueError(f"num_classes must be above the largest target {found - 1}, got {self.num_classes}")
        object.__setattr__(self, "targets", self.targets.long())

    def to(self, device: torch.device | str) -> "Data":
        """The same on a device."""
        inputs, targets = self.inputs.to(device), self.targets.to(device)
        return Data(inputs, targets, self.num_classes, self.name, self.mirrored)


ModelFactory = Callable[[Data], nn.Module]


@dataclass(frozen=True, eq=False)
class Task:
    """One training: what, with what, for how long.

    Tasks of one generation that share data, model, optimizer, horizon, batch size, number of held-out examples and the last
    three settings train side by side; the others one after another.

    Args:
        data: where the examples come from.
        model: makes the network for the data; initialised from `seed`.
        total_steps: the horizon.
        batch_size: examples a step.
        train, val: indices into the data, disjoint; all examples of the classes, four to one, if None.
        classes: only these, renamed 0, 1, ...; all if None. The network's other outputs are shut.
        optimizer: `sgd`, `sgdm`, `adam`, `adamw`, or an `Update`.
        weight_decay: of the optimizer.
        label_noise: share of the training labels that are replaced by random ones; not for sequences.
        seed: of initialisation, order of the batches, mirroring and noise.
        label_smoothing: of the training loss.
        clip_norm: largest norm of the gradient; no limit if None.
        judged_after: part of the horizon after which the training stops and is judged; below 1 the end is never seen.
    """

    data: Data
    model: ModelFactory
    total_steps: int
    batch_size: int
    train: Tensor | None = field(default=None, repr=False)
    val: Tensor | None = field(default=None, repr=False)
    classes: Sequence[int] | None = None
    optimizer: "str | Update" = "sgd"
    weight_decay: float = 0.0
    label_noise: float = 0.0
    seed: int = 0
    label_smoothing: float = 0.0
    clip_norm: float | None = None
    judged_after: float = 1.0

    def __post_init__(self) -> None:
        _check.whole_number("total_steps", self.total_steps)
        if not 0 < _check.real("judged_after", self.judged_after) <= 1:
            raise ValueError(f"judged_after must be in (0, 1], a part of the horizon, got {self.judged_after!r}")
        _check.whole_number("batch_size", self.batch_size)
        _check.whole_number("seed", self.seed, 0)
        object.__setattr__(self, "optimizer", find(self.optimizer))
        for name in ("label_noise", "label_smoothing"):
            _check.below_one(name, getattr(self, name))
        _check.not_negative("weight_decay", self.weight_decay)
        if self.clip_norm is not None:
            _check.positive("clip_norm", self.clip_norm)
        if self.classes is not None and not _are_classes(self.classes, self.data):
            raise ValueError(
                f"classes must be two or more different ones of 0 to {self.data.num_classes - 1}, with one target an "
                f"example, got {self.classes!r}"
            )
        if self.label_noise and self.data.targets.ndim > 1:
            raise ValueError(
                f"label_noise needs one target an example, got {self.label_noise} with sequences: leave it out"
            )
        if (self.train is None) != (self.val is None):
            raise ValueError("train and val must be given together, or neither: then the data is split four to one")
        if self.train is None:
            own = torch.arange(len(self.data.inputs))[self._usable()]
            order = own[torch.randperm(len(own), generator=generator("split", self.seed))]
            object.__setattr__(self, "val", order[: max(1, len(order) // 5)])
            object.__setattr__(self, "train", order[max(1, len(order) // 5) :])
        self._check_examples()

    @property
    def num_classes(self) -> int:
        """How many the task tells apart."""
        return self.data.num_classes if self.classes is None else len(self.classes)

    @property
    def steps(self) -> int:
        """How many are taken."""
        return max(1, round(self.judged_after * self.total_steps))

    def _usable(self) -> Tensor:
        """(N,) whether an example is of the task's classes."""
        targets = self.data.targets.cpu()
        if self.classes is None:
            return torch.ones(len(targets), dtype=torch.bool)
        return torch.isin(targets, torch.tensor(list(self.classes)))

    def _check_examples(self) -> None:
        assert self.train is not None
        assert self.val is not None
        count, usable = len(self.data.inputs), self._usable()
        for name, index in (("train", self.train), ("val", self.val)):
            if not len(index) or int(index.min()) < 0 or int(index.max()) >= count:
                raise ValueError(f"{name} must be indices from 0 to {count - 1}, at least one, got {index!r}")
            if not usable[index].all():
                raise ValueError(f"{name} must be examples of the classes {self.classes}, got some of others")
        trained = torch.zeros(count, dtype=torch.bool)
        trained[self.train] = True
        if trained[self.val].any():
            raise ValueError(f"val must have no example of train, got {int(trained[self.val].sum())} of them")
        if len(self.train) < self.batch_size:
            raise ValueError(
                f"batch_size must be at most the number of training examples, {len(self.train)}; got {self.batch_size}"
            )

    @property
    def kind(self) -> tuple[Any, ...]:
        """Tasks of one kind share a step; with equal horizons too they train side by side."""
        assert self.val is not None
        held_out = len(self.val)
        return self.data, self.model, self.optimizer, self.batch_size, held_out, self.label_smoothing, self.clip_norm

    def labels(self) -> Tensor:
        """(N,) the targets under the task's own names, with its noise; 0 for classes that it does not have."""
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


class Sampler(Protocol):
    """Anything that yields the tasks of a generation, the same ones for the same seed."""

    def sample(self, seed: int, count: int) -> list[Task]:
        """`count` tasks."""


@dataclass(frozen=True)
class TaskSampler:
    """Draws tasks from lists and ranges of what may vary; a subclass that overrides `draw` adds its own.

    The tasks of one generation share what makes them batch together (data, model, optimizer, horizon, batch size,
    smoothing); class subsets, amounts of data, decay, noise and seeds differ.

    Args:
        data: one of these.
        models: and one of these, each a function of the data that returns a network.
        horizons: smallest and largest number of steps, drawn evenly in log(steps).
        batch_sizes, optimizers, weight_decays, label_noises, label_smoothings: one of each.
        num_classes: one of these; None is all of them.
        train_sizes: smallest and largest number of training examples, drawn evenly in the logarithm; all there are if None.
        val_size: held-out examples of a task.
        clip_norm, judged_after: for all tasks.

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
    optimizers: Sequence["str | Update"] = ("sgd",)
    weight_decays: Sequence[float] = (5e-4,)
    num_classes: Sequence[int | None] = (None,)
    train_sizes: tuple[int, int] | None = None
    val_size: int = 256
    label_noises: Sequence[float] = (0.0,)
    label_smoothings: Sequence[float] = (0.0,)
    clip_norm: float | None = None
    judged_after: float = 1.0
    _by_class: dict[Data, list[Tensor]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in CHOICES:
            choices = getattr(self, name)
            if not isinstance(choices, list | tuple) or not choices:
                raise ValueError(f"{name} must be a list of one or more to choose from, got {choices!r}")
        for optimizer in self.optimizers:
            find(optimizer)
        for data in self.data:
            if not isinstance(data, Data):
                raise ValueError(
                    f"each of data must be a horizon.Data, got {type(data).__name__}: wrap inputs and targets"
                )
        for name in ("label_noises", "label_smoothings"):
            for share in getattr(self, name):
                _check.below_one(f"each of {name}", share)
        for decay in self.weight_decays:
            _check.not_negative("each of weight_decays", decay)
        if self.clip_norm is not None:
            _check.positive("clip_norm", self.clip_norm)
        for model in self.models:
            if not callable(model) or isinstance(model, nn.Module):
                raise ValueError(f"each of models must be a function of the data that returns a network, got {model!r}")
        for size in self.batch_sizes:
            _check.whole_number("each of batch_sizes", size)
        for number in self.num_classes:
            if number is not None:
                _check.whole_number("each of num_classes", number, 2)
        for name in ("horizons", "train_sizes"):
            _check_limits(name, getattr(self, name))
        _check.whole_number("val_size", self.val_size)

    def sample(self, seed: int, count: int) -> list[Task]:
        """The tasks of one generation."""
        random = torch.Generator().manual_seed(seed)
        shared = self.shared(random)
        return [self.draw(shared, random) for _ in range(count)]

    def shared(self, random: torch.Generator) -> dict[str, Any]:
        """What the tasks of a generation have in common."""
        return {
            "data": pick(self.data, random),
            "model": pick(self.models, random),
            "total_steps": log_uniform(*self.horizons, random),
            "batch_size": pick(self.batch_sizes, random),
            "optimizer": pick(self.optimizers, random),
            "label_smoothing": pick(self.label_smoothings, random),
            "clip_norm": self.clip_norm,
            "judged_after": self.judged_after,
        }

    def draw(self, shared: dict[str, Any], random: torch.Generator) -> Task:
        """One of them."""
        data: Data = shared["data"]
        wanted = pick(self.num_classes, random)
        classes = None
        if wanted is not None and wanted < data.num_classes:
            classes = torch.randperm(data.num_classes, generator=random)[:wanted].tolist()
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

    def _examples(self, data: Data, classes: list[int] | None) -> Tensor:
        if classes is None:
            return torch.arange(len(data.inputs))
        if data not in self._by_class:
            targets = data.targets.cpu()
            self._by_class[data] = [(targets == c).nonzero().squeeze(1) for c in range(data.num_classes)]
        return torch.cat([self._by_class[data][c] for c in classes])


def pick(choices: Sequence[T], random: torch.Generator) -> T:
    """One of them, each as likely."""
    return choices[int(torch.randint(len(choices), (), generator=random))]


def log_uniform(smallest: float, largest: float, random: torch.Generator) -> int:
    """A whole number between them, its logarithm evenly spread."""
    part = float(torch.rand((), generator=random))
    return round(math.exp(math.log(smallest) + part * (math.log(largest) - math.log(smallest))))


def _tensor(name: str, values: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        tensor = torch.empty(())
    if not tensor.ndim:
        raise ValueError(
            f"{name} must be a tensor or an array of examples, got {type(values).__name__}: pass numbers only"
        )
    return tensor


def _check_limits(name: str, limits: Any) -> None:
    if limits is None and name == "train_sizes":
        return
    if not isinstance(limits, list | tuple) or len(limits) != 2:
        raise ValueError(f"{name} must be (smallest, largest), got {limits!r}")
    smallest, largest = (_check.whole_number(f"each of {name}", limit) for limit in limits)
    if smallest > largest:
        raise ValueError(f"{name} must be (smallest, largest), got {limits!r}")


def _are_classes(classes: Sequence[int], data: Data) -> bool:
    known = all(isinstance(c, int) and 0 <= c < data.num_classes for c in classes)
    return known and len(set(classes)) == len(classes) >= 2 and data.targets.ndim == 1
