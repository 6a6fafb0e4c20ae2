"""Weights that are spread over processes (DTensor, as in FSDP2): this process's parts, and sums over the whole.

`torch.distributed.tensor` takes a fifth of a second to import, so it is asked for only where someone else has imported it.
"""

import sys
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mlrsnet.ranks import sum_over_ranks


def is_sharded(tensor: Tensor) -> bool:
    """Whether it is a DTensor."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor, sharing its memory; call it without gradients."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def whole_vector(weight: Tensor) -> Tensor:
    """All of a vector, gathered from the processes that hold parts of it; anything else as it is."""
    return weight.full_tensor() if weight.ndim == 1 and is_sharded(weight) else weight  # type: ignore[attr-defined]


def is_zero(weight: Tensor) -> bool:
    """Whether all numbers of a weight are 0, in every process; waits for its device."""
    found = local(weight).any().float().reshape(1, 1)
    return not whole_squares(found, sharers([weight])).any()


def is_flattened(parameter: Tensor) -> bool:
    """Whether it is a part of FSDP1's flat weight."""
    return bool(getattr(parameter, "_fsdp_flattened", False))


def sharers(weights: Sequence[Tensor]) -> dict[Any, list[int]]:
    """The process groups over which weights are sharded, and which weights, in the same order on every process.

    Processes that hold the same part of a weight, as in HSDP, are no sharers: it is counted once.
    """
    found: dict[Any, list[int]] = {}
    for place, weight in enumerate(weights):
        if is_sharded(weight):
            for dimension, placement in enumerate(weight.placements):  # type: ignore[attr-defined]
                if not placement.is_replicate():
                    found.setdefault(weight.device_mesh.get_group(dimension), []).append(place)  # type: ignore[attr-defined]
    return found


def whole_squares(squares: Tensor, sharers: dict[Any, list[int]]) -> Tensor:
    """(rows, L) sums of squares over whole weights, from those of this process's parts: one reduction for each group."""
    for group, places in sharers.items():
        squares = squares.clone()
        squares[:, places] = sum_over_ranks(squares[:, places], group).to(squares)
    return squares
