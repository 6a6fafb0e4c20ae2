"""Datasets of examples that are neither pictures nor running text: rows of numbers, or pieces of text, each with a target."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mlrsnet_lab.datasets.options import FractionOptions
from mlrsnet_lab.datasets.split import SPLIT_SEED

VAL_SHARE = TEST_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs, float32 (N, features) or token numbers int64 (N, length); targets, int64 (N) or float32 (N, numbers)."""

    inputs: Tensor
    targets: Tensor

    def __getitem__(self, indices: Tensor | slice) -> "Examples":
        return Examples(self.inputs[indices], self.targets[indices])

    def __len__(self) -> int:
        return len(self.targets)


class Parts(NamedTuple):
    """Examples to train, validate and test on."""

    train: Examples
    val: Examples
    test: Examples


@dataclass(frozen=True, eq=False)
class ExampleDataset:
    """Examples to train, validate and test on.

    num_classes: None if the targets are numbers to predict.
    unit, scale: of such numbers. A network learns target / scale, and its error is told in the unit.
    vocabulary: the number of tokens; None if the inputs are rows of numbers.
    note: what a record should say about the data.
    """

    name: str
    train: Examples
    val: Examples
    test: Examples
    num_classes: int | None
    unit: str = ""
    scale: float = 1.0
    vocabulary: int | None = None
    note: str = ""

    @property
    def width(self) -> int:
        """Features of a row, or tokens of a text."""
        return int(self.train.inputs.shape[1])

    @property
    def outputs(self) -> int:
        """Classes, or numbers to predict."""
        return int(self.train.targets.shape[1]) if self.num_classes is None else self.num_classes

    @property
    def sizes(self) -> dict[str, int]:
        """The number of examples in each part."""
        return {"train": len(self.train), "val": len(self.val), "test": len(self.test)}

    @property
    def rmse_of_mean(self) -> float:
        """The test error of whoever always says the mean of the training targets: R^2 = 1 - (RMSE / this)^2."""
        error = self.test.targets.double() - self.train.targets.double().mean(0)
        return self.scale * float(error.square().mean().sqrt())


def split(examples: Examples) -> Parts:
    """Parts of one fixed random order: a tenth to validate on, a tenth to test on, the rest to train on."""
    count = len(examples)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SPLIT_SEED))
    held_out, last = round(VAL_SHARE * count), round(TEST_SHARE * count)
    val, test, train = order.split([held_out, last, count - held_out - last])
    return Parts(examples[train], examples[val], examples[test])


def chosen(parts: Parts, options: FractionOptions) -> Parts:
    """The fraction to train on; the other parts as they are."""
    return parts._replace(train=parts.train[slice(max(1, round(options.fraction * len(parts.train))))])


def prepared(parts: Parts, options: FractionOptions) -> Parts:
    """The chosen fraction to train on, and features with mean 0 and deviation 1 there; constant ones are only centred."""
    parts = chosen(parts, options)
    inputs = parts.train.inputs.double()
    mean, std = inputs.mean(0), inputs.std(0)
    std[std < 1e-9] = 1.0
    return Parts(*(Examples(((part.inputs.double() - mean) / std).float(), part.targets) for part in parts))
