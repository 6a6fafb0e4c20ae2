"""scikit-learn's digits: 1,797 real handwritten digits of 8x8 pixels, shipped inside the package, no download."""

from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor

NUM_CLASSES = 10
NUM_TRAIN, NUM_VAL = 1200, 297
SPLIT_SEED = 0


class Split(NamedTuple):
    """Pictures (N, 1, 8, 8), normalised with the training set's mean and deviation, and their labels (N)."""

    images: Tensor
    labels: Tensor


class Digits(NamedTuple):
    """Disjoint parts, the same in every run: 1,200 to train, 297 to choose by, 300 to report."""

    train: Split
    val: Split
    test: Split


def load() -> Digits:
    """The three parts."""
    source = load_digits()
    images = torch.as_tensor(source.images, dtype=torch.float32).unsqueeze(1)
    labels = torch.as_tensor(source.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    parts = order.split((NUM_TRAIN, NUM_VAL, len(labels) - NUM_TRAIN - NUM_VAL))
    mean, std = images[parts[0]].mean(), images[parts[0]].std()
    return Digits(*(Split((images[part] - mean) / std, labels[part]) for part in parts))
