"""What weights, or a whole model, tell before the first step: sizes, depth, norms, whether they were trained."""

import math
import re
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mlrsnet import _check, _shards
from mlrsnet.law import Facts

LOW_PRECISION = (torch.bfloat16, torch.float16)
READABLE = (torch.float64, torch.float32, torch.complex64, torch.complex128, *LOW_PRECISION)
"""Not 8-bit, integer or boolean parameters: masks, codes and tables of other libraries."""

SHORTEST_GAIN = 8
"""A shorter vector may look like a trained gain by chance."""

STEADY = 2.0
"""The mean of a gain is at least this many times its standard deviation. That of random biases is near 0."""

DRAWN = 0.03
"""A trained gain varies by at least this share of its mean. Some draw new gains around 1, with a deviation of 0.02."""

FEWEST_LINES, MOST_LINES = 32, 512
"""Rows, and columns, of a matrix in which a training is looked for. Of new ones with 16, one in a hundred is uneven."""

NO_SPREAD = 1e-6
"""Entries whose squares vary by less are constants, or signs, and what is left is rounding."""

ADAPTER_SHARE, FEWEST_PLACES = 0.5, 2
"""Most adapters have at most this share of the numbers of the frozen matrix before them, and there are some in so many places."""

NORM = re.compile(r"(batch|layer|group|instance|rms|local\w*)_?norm")
"""In the names of norms' classes, in lower case: every library has its own. Those of weights, such as WeightNorm, are none."""

ZEROS = 0.4
"""More of the matrices begin at zero: adapters, or branches of a residual network that begin as nothing."""

UNEVEN = 2.0
"""From which median `unevenness` on matrices are trained. That of new ones is about 1, however they were initialised."""


def is_readable(weight: Tensor) -> bool:
    """Whether a parameter is trained, and its numbers are there to look at."""
    return weight.requires_grad and weight.dtype in READABLE and not weight.is_meta and not is_lazy(weight)


def told(
    trained: bool | None = None,
    batch_size: int | None = None,
    model: nn.Module | None = None,
    num_classes: int | None = None,
    initial_loss: float | None = None,
) -> Facts:
    """What a user told, checked; see `LearnedLR`."""
    if num_classes is not None:
        num_classes = _check.whole_number("num_classes", num_classes, 2, "classes, or the size of the vocabulary")
    if initial_loss is not None:
        initial_loss = _check.real("initial_loss", initial_loss, "the loss of the untrained network")
    if batch_size is not None:
        batch_size = _check.whole_number(
            "batch_size", batch_size, 1, "examples in an optimizer step, over all processes"
        )
    if model is not None and not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, got {type(model).__name__}: pass the network whose weights are trained"
        )
    return (Facts() if model is None else read_model(model))._replace(
        is_trained=_check.yes_or_no("trained", trained),
        batch_size=batch_size,
        num_classes=num_classes,
        initial_loss=initial_loss,
    )


@torch.no_grad()
def read_facts(weights: Iterable[Tensor]) -> Facts:
    """The facts of some weights; waits for their device.

    Gains of norms are found by their values, since an optimizer knows no layers: a new one is all ones, a used one varies a little
    around a mean that is far from 0. A network with more used than new ones was trained before, and so was one without new gains
    whose matrices are uneven.

    Adapters, of whose matrices about half begin at zero, multiply nothing up: their depth is 1.

    >>> norm, layer = torch.nn.BatchNorm1d(16), torch.nn.Linear(3, 16)
    >>> read_facts([layer.weight, norm.weight, norm.bias])[:5]
    (1, 80, True, False, False)
    >>> used = torch.nn.Parameter(torch.linspace(0.5, 1.5, 16))
    >>> read_facts([layer.weight, used]).is_trained, read_facts([layer.bias]).is_trained
    (True, False)
    """
    matrices = parameters = new = steady = used = zero = 0
    uneven = list[Tensor]()
    for weight in filter(is_readable, weights):
        parameters += weight.numel() * (2 if weight.is_complex() else 1)
        if weight.ndim >= 2:
            matrices += 1
            zero += _shards.is_zero(weight)
            if not weight.is_complex() and not _shards.is_sharded(weight):
                uneven.append(unevenness(weight.detach().flatten(1)))
        if weight.ndim == 1 and weight.numel() and not weight.is_complex():
            values = _shards.whole_vector(weight).detach().float()
            spread, mean, is_new = torch.stack(
                (values.std(correction=0), values.mean().abs(), (values == 1).all().float())
            ).tolist()
            new += bool(is_new)
            is_gain = len(values) >= SHORTEST_GAIN and spread > 0 and mean > STEADY * spread
            steady += is_gain
            used += is_gain and spread > DRAWN * mean
    is_trained = used > new or (not new and _median(uneven) > UNEVEN)
    return Facts(matrices, max(1, parameters), bool(new + steady), zero > ZEROS * matrices, is_trained)


def read_model(model: nn.Module) -> Facts:
    """What weights cannot tell, and their model can: frozen norms and those without gains, and adapters that were trained before.

    What it does not find, weights may still show.

    >>> layers = [torch.nn.Linear(3, 16), torch.nn.LayerNorm(16, elementwise_affine=False)]
    >>> read_model(torch.nn.Sequential(*layers)).has_norms
    True
    """
    has_norms = any(NORM.search(type(module).__name__.lower()) for module in model.modules() if _is_leaf(module))
    return Facts(has_norms=has_norms or None, are_adapters=has_adapters(model) or None)


def has_adapters(model: nn.Module) -> bool:
    """Whether what is trained stands beside larger frozen matrices, as adapters do, in more than one place.

    >>> frozen = [torch.nn.Linear(9, 9).requires_grad_(False) for _ in range(2)]
    >>> small = [torch.nn.Linear(9, 1), torch.nn.Linear(9, 1)]
    >>> has_adapters(torch.nn.Sequential(frozen[0], small[0], frozen[1], small[1]))
    True
    >>> has_adapters(torch.nn.Sequential(*frozen, *small))
    False
    """
    matrices = [weight for weight in model.parameters() if weight.ndim >= 2]
    beside, places, count, small = 0, 0, 0, 0
    for before, weight in zip([None, *matrices], matrices, strict=False):
        if not weight.requires_grad:
            beside = weight.numel()
            continue
        count += 1
        places += before is not None and not before.requires_grad
        small += weight.numel() <= ADAPTER_SHARE * beside
    return places >= FEWEST_PLACES and 2 * small > count


def _is_leaf(module: nn.Module) -> bool:
    """Whether a module holds neither others nor matrices: blocks that hold norms are none themselves."""
    return not any(True for _ in module.children()) and all(one.ndim < 2 for one in module.parameters())


def unevenness(matrix: Tensor) -> Tensor:
    """How much the lengths of rows, or of columns, differ: their variance, divided by that of independent entries.

    Whoever draws weights, draws them independently, from any distribution; a training makes some rows and columns longer. Those
    of zeros are left out: a mask made them, or padding. NaN for a small matrix, and where all entries have the same size.

    >>> drawn = torch.randn(100, 50, generator=torch.Generator().manual_seed(0))
    >>> round(float(unevenness(drawn))), float(unevenness(drawn + drawn[:1])) > 5
    (1, True)
    """
    steps = [max(1, -(-size // MOST_LINES)) for size in matrix.shape]
    squares = matrix[:: steps[0], :: steps[1]].float().square()
    squares = squares[squares.any(1)][:, squares.any(0)]
    if min(squares.shape) < FEWEST_LINES:
        return squares.new_full((), math.nan)
    squares = squares / squares.mean()
    rows, columns = (squares.mean(1 - axis).var(correction=0) * squares.shape[1 - axis] for axis in (0, 1))
    spread = squares.var(correction=0)
    return torch.maximum(rows, columns) / torch.where(spread > NO_SPREAD, spread, math.nan)


def _median(numbers: list[Tensor]) -> float:
    """Of those that are not NaN; 0 for none."""
    found = float(torch.stack([one.cpu() for one in numbers]).nanmedian()) if numbers else math.nan
    return 0.0 if math.isnan(found) else found
