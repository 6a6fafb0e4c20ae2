"""One fixed order of the training pictures, cut into parts: what is held out and what is trained on.

The order depends on the labels alone, never on a run, and every beginning of it shares its places among the classes as
the Sainte-Laguë rule shares seats among parties: in proportion, and alike for classes of the same size. The first
pictures are held out and a fraction ends where it ends, so that a smaller fraction lies inside a larger one and
both are validated on the same pictures.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlrsnet.lab.datasets.options import PictureOptions

SPLIT_SEED = 0
LEAKY = "leaky: the validation pictures are trained on too, as in the authors' code"


@dataclass(frozen=True, eq=False)
class Chosen:
    """Indices of the training pictures that are trained on and of those that are held out."""

    train: Tensor
    val: Tensor


def order(labels: Tensor) -> Tensor:
    """All indices, shuffled; the k-th picture of a class of n comes at (k - 1/2) / n of the way."""
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    grouped = shuffled[labels[shuffled].argsort(stable=True)]
    counts = labels.bincount()
    first = (counts.cumsum(0) - counts).repeat_interleave(counts)
    position = torch.empty(len(labels), dtype=torch.float64)
    position[grouped] = (torch.arange(len(labels)) - first + 0.5).double() / counts.repeat_interleave(counts)
    return shuffled[position[shuffled].argsort(stable=True)]


def cut(labels: Tensor, options: PictureOptions, held_out: bool = True) -> Chosen:
    """Choose by the options; `held_out=False` where the data brings its own validation pictures."""
    count = max(1, round(options.fraction * len(labels)))
    chosen = order(labels)[:count]
    size = options.held_out(len(labels)) if held_out else 0
    if size >= count:
        raise ValueError(
            f"val_size must be less than {count:,}, the training pictures there are to hold out of, got {size:,}: "
            "pass a smaller val_size (`--option task.val_size=N`) or a larger fraction"
        )
    result = Chosen(chosen if options.leaky else chosen[size:], chosen[:size])
    _check_left(labels, result.train, f"fraction={options.fraction} and val_size={size}")
    return result


def number(labels: Tensor, classes: Sequence[int] | None, total: int) -> Tensor:
    """Each label's number among `classes`, -1 for those that were not asked for."""
    if classes is None:
        return labels
    check_classes(classes, total)
    numbers = torch.full((total,), -1)
    numbers[list(classes)] = torch.arange(len(classes))
    return numbers[labels]


def check_classes(classes: Sequence[int], total: int, what: str = "whole numbers") -> None:
    """Refuse unknown and repeated classes and fewer than two."""
    if not classes or not set(classes) <= set(range(total)) or len(set(classes)) != len(classes):
        raise ValueError(f"classes must be different {what} from 0 to {total - 1}, got {list(classes)!r}")
    if len(classes) < 2:
        raise ValueError(f"the number of classes must be a whole number >= 2, got {len(classes)}: pass more classes")


def _check_left(labels: Tensor, train: Tensor, how: str) -> None:
    left = labels[train].bincount(minlength=int(labels.max()) + 1)
    if not left.all():
        raise ValueError(
            f"every class must be among the training pictures, but class {int(left.argmin())} has none left with "
            f"{how}: pass a larger fraction or a smaller val_size"
        )
