"""Split training pictures into a part to train on and a part to validate on.

All splits are cuts of one fixed order, which depends only on the labels. Any beginning of it has the classes in proportion, as the
Sainte-Laguë method gives seats to parties. The first pictures are held out, and a fraction is a beginning of the order. So a
smaller fraction is part of a larger one, and both have the same validation pictures.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlrsnet_lab.datasets.options import PictureOptions

SPLIT_SEED, OTHER_SEED = 0, 1
LEAKY = "leaky: the validation pictures are trained on too"
OVERLAP = "overlap: validation pictures are drawn from all training pictures, as in the authors' code"


@dataclass(frozen=True, eq=False)
class Chosen:
    """Indices of the pictures to train on, and of those held out."""

    train: Tensor
    val: Tensor


def note(options: PictureOptions) -> str:
    """What a record says of validation pictures that are trained on."""
    return LEAKY if options.leaky else OVERLAP if options.overlap else ""


def order(labels: Tensor, seed: int = SPLIT_SEED) -> Tensor:
    """All indices, shuffled. The k-th picture of a class of n is placed at (k - 1/2) / n of the order."""
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    grouped = shuffled[labels[shuffled].argsort(stable=True)]
    counts = labels.bincount()
    first = (counts.cumsum(0) - counts).repeat_interleave(counts)
    position = torch.empty(len(labels), dtype=torch.float64)
    position[grouped] = (torch.arange(len(labels)) - first + 0.5).double() / counts.repeat_interleave(counts)
    return shuffled[position[shuffled].argsort(stable=True)]


def cut(labels: Tensor, options: PictureOptions, held_out: bool = True) -> Chosen:
    """Cut the order as the options say. `held_out=False`: the dataset has its own validation pictures."""
    count = max(1, round(options.fraction * len(labels)))
    chosen = order(labels)[:count]
    size = options.held_out(len(labels)) if held_out else 0
    if size >= count:
        raise ValueError(
            f"val_size must be less than {count:,}, the number of training pictures, got {size:,}: "
            "pass a smaller val_size (`--option task.val_size=N`) or a larger fraction"
        )
    first = max(0 if options.leaky else size, round(options.begin * len(labels)))
    val = _drawn_again(labels, chosen) if options.overlap else chosen
    result = Chosen(chosen[first:], val[:size])
    _check_left(labels, result.train, f"fraction={options.fraction} and val_size={size}")
    return result


def _drawn_again(labels: Tensor, chosen: Tensor) -> Tensor:
    """The chosen indices in another order, which knows nothing of the first."""
    other = order(labels, OTHER_SEED)
    return other[torch.isin(other, chosen)]


def number(labels: Tensor, classes: Sequence[int] | None, total: int) -> Tensor:
    """Each label's position in `classes`, or -1 if it is not among them."""
    if classes is None:
        return labels
    check_classes(classes, total)
    numbers = torch.full((total,), -1)
    numbers[list(classes)] = torch.arange(len(classes))
    return numbers[labels]


def check_classes(classes: Sequence[int], total: int, what: str = "whole numbers") -> None:
    """Raise on unknown or repeated classes, and on fewer than two."""
    if not classes or not set(classes) <= set(range(total)) or len(set(classes)) != len(classes):
        raise ValueError(f"classes must be different {what} from 0 to {total - 1}, got {list(classes)!r}")
    if len(classes) < 2:
        raise ValueError(f"the number of classes must be a whole number >= 2, got {len(classes)}: pass more classes")


def _check_left(labels: Tensor, train: Tensor, how: str) -> None:
    left = labels[train].bincount(minlength=int(labels.max()) + 1)
    if not left.all():
        raise ValueError(
            f"every class must have training pictures, but class {int(left.argmin())} has none left with "
            f"{how}: pass a larger fraction or a smaller val_size"
        )
