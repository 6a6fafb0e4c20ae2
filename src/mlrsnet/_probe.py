"""How long the steps of an optimizer will be, before it has taken any: a copy of it steps on random gradients.

After one `backward()` the size of a gradient is known; where later ones will point is not. So each of its numbers gets a random
sign in every step, as if gradients were mostly noise. Momentum, Adam's division, signs and orthogonal steps are the optimizer's
own. Without gradients, random ones serve if the optimizer does not care about their size.

Nothing that belongs to the user changes: weights, gradients, the optimizer's state and hooks, torch's random numbers.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from mlrsnet import _shards
from mlrsnet.facts import is_readable
from mlrsnet.ops import HOST
from mlrsnet.sensors import Layout, Weights, square

STEPS, SKIPPED = 20, 10
"""Steps of the copy, and those at its start that do not count: an average over ten steps has filled by then."""

OTHER_SIZE, SAME = 64.0, 0.05
"""Where the size of gradients does not matter, those so many times as large move a weight alike, up to this share."""

PLAIN = (bool, int, float, str, tuple, type(None))
"""Attributes that a copy keeps. Others may be tied to the optimizer that they come from."""


class UnknownError(Exception):
    """Why the length of a step is not known."""


@torch.no_grad()
def relative_square(optimizer: Optimizer, groups: Sequence[dict[str, Any]], shares: Sequence[float]) -> float:
    """x, as `sensors.Steps` will see it: |step at an LR of 1|^2 / |weights|^2.

    Raises:
        UnknownError: with the reason.
    """
    rows = [
        (weight, group, share)
        for group, share in zip(groups, shares, strict=True)
        for weight in group["params"]
        if share and is_readable(weight)
    ]
    rows = [row for row in rows if row[0].ndim >= 2] or rows
    there, size = [row for row in rows if row[0].grad is not None], None
    if not there:
        there, size = rows, 1.0
        smallest = min(there, key=lambda row: row[0].numel(), default=None)
        if smallest is None or not _ignores_size(optimizer, smallest[1], smallest[0]):
            raise UnknownError(
                f"the steps of {type(optimizer).__name__} are as long as its gradients, and there are none: call "
                "loss.backward() for one batch, then preview(...), then zero_grad()"
            )
    weights = Weights(list(range(len(there))), [row[0] for row in there], [row[2] for row in there], [1.0] * len(there))
    layout, of = Layout(weights, {}, None), {id(weight): group for weight, group, _ in there}
    moved = [_moves(optimizer, of[id(weight)], weight, size) for weight in layout.weights.tensors]
    lengths = layout.whole(layout.lengths())[0].double().cpu().numpy()
    x = float(square(np.stack((lengths, np.array(moved) / layout.stretch)), layout, layout.scales.pulled, HOST))
    if not 0 < x < math.inf:
        raise UnknownError("the gradients are all 0 or not finite: call loss.backward() for another batch first")
    return x


def _ignores_size(optimizer: Optimizer, group: dict[str, Any], weight: Tensor) -> bool:
    """Whether gradients of any size move a weight alike, as in Adam."""
    small, large = (_moves(optimizer, group, weight, size) for size in (1.0, OTHER_SIZE))
    return 0 < small < math.inf and abs(large / small - 1) < SAME


def _moves(optimizer: Optimizer, group: dict[str, Any], weight: Tensor, size: float | None) -> float:
    """How far a weight, or this process's part, moves at an LR of 1: by its own gradient, or by random ones of a `size`."""
    before = _shards.local(weight).detach()
    gradient = None if size is not None or weight.grad is None else _shards.local(weight.grad)
    random = torch.Generator(before.device).manual_seed(0)
    twin = Parameter(before.clone())
    copied = _copy_of(optimizer, [{**group, "params": [twin], "lr": 1.0}])
    squares = []
    try:
        with torch.random.fork_rng([before.device] if before.is_cuda else []):
            for step in range(STEPS):
                twin.grad = _random_gradient(gradient, size, twin, random)
                _step(copied)
                if step >= SKIPPED:
                    squares.append(_square_norm(before.to(twin) - twin.detach()))
                twin.copy_(before)
    except Exception as error:  # whatever an optimizer of others may say
        raise UnknownError(f"a copy of {type(optimizer).__name__} could not take a step ({error})") from None
    return float(torch.stack(squares).mean().sqrt())


def _square_norm(tensor: Tensor) -> Tensor:
    return tensor.abs().double().square().sum() if tensor.device.type != "mps" else tensor.abs().float().square().sum()


def _random_gradient(gradient: Tensor | None, size: float | None, like: Tensor, random: torch.Generator) -> Tensor:
    """A gradient with random signs, or a random one."""
    if gradient is None:
        return torch.randn(like.shape, generator=random, device=like.device).to(like.dtype) * (size or 0.0)
    signs = torch.randint(0, 2, like.shape, generator=random, device=like.device)
    return (gradient.to_dense() if gradient.is_sparse else gradient) * (2 * signs - 1).to(gradient.dtype)


def _copy_of(optimizer: Optimizer, groups: list[dict[str, Any]]) -> Optimizer:
    """An optimizer of the same kind with these groups, without state, hooks or a `step` that others have wrapped."""
    copied: Optimizer = object.__new__(type(optimizer))
    kept = {name: value for name, value in vars(optimizer).items() if isinstance(value, PLAIN)}
    own = {"defaults": dict(getattr(optimizer, "defaults", {})), "state": defaultdict(dict), "param_groups": groups}
    Optimizer.__setstate__(copied, kept | own)
    return copied


def _step(optimizer: Optimizer) -> None:
    """A step without hooks, since some are for all optimizers."""
    step = type(optimizer).step
    getattr(step, "__wrapped__", step)(optimizer) if hasattr(step, "hooked") else step(optimizer)
