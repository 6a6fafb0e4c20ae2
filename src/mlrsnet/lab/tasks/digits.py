"""scikit-learn's digits: 1,797 real handwritten digits of 8x8 pixels, shipped inside the package, no download."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from mlrsnet import _check

ALL = tuple(range(10))
NUM_TRAIN, NUM_VAL = 1200, 297
SPLIT_SEED = 0


class Split(NamedTuple):
    """Pictures (N, 1, 8, 8), normalised with the whole training set's mean and deviation, and their labels (N)."""

    images: Tensor
    labels: Tensor


class Digits(NamedTuple):
    """Disjoint parts, the same in every run: of all ten classes 1,200 to train, 297 to choose by, 300 to report."""

    train: Split
    val: Split
    test: Split


def load(classes: Sequence[int] = ALL, device: str | torch.device = "cpu") -> Digits:
    """The three parts, of all classes or of some, which are numbered from 0 in the order given."""
    if not classes or not set(classes) <= set(ALL) or len(set(classes)) != len(classes):
        raise ValueError(f"classes must be different digits from 0 to 9, got {list(classes)!r}")
    _check.whole_number("the number of classes", len(classes), 2)
    source = load_digits()
    images = torch.as_tensor(source.images, dtype=torch.float32).unsqueeze(1)
    labels = torch.as_tensor(source.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    parts = order.split((NUM_TRAIN, NUM_VAL, len(labels) - NUM_TRAIN - NUM_VAL))
    mean, std = images[parts[0]].mean(), images[parts[0]].std()
    number = torch.full((10,), -1)
    number[list(classes)] = torch.arange(len(classes))
    chosen = [part[number[labels[part]] >= 0] for part in parts]
    return Digits(*(Split(((images[c] - mean) / std).to(device), number[labels[c]].to(device)) for c in chosen))
