"""Weights that are spread over processes (DTensor, as in FSDP2): this process's parts, and lengths of the whole."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor

from mlrsnet._engine.ranks import sum_over_ranks


def local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor, sharing its memory; call it without gradients."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole_vector(weight: Tensor) -> Tensor:
    """All of a vector, gathered from the processes that hold parts of it; anything else as it is."""
    return weight.full_tensor() if isinstance(weight, DTensor) and weight.ndim == 1 else weight


def is_flattened(parameter: Tensor) -> bool:
    """Whether it is a part of FSDP1's flat weight, in which matrices cannot be told apart."""
    return bool(getattr(parameter, "_fsdp_flattened", False))


def whole_lengths(lengths: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """(rows, L) lengths of whole weights, from those of this process's parts.

    Squares are added up over the processes that hold other parts of a weight, not over those that hold the same part. One
    reduction for each group of processes; FSDP2 has one group.
    """
    places = _sharers(weights)
    if not places:
        return lengths
    squares = lengths.square()
    for group, those in places.items():
        if len(those) == len(weights):
            squares = sum_over_ranks(squares, group)
        else:
            squares[:, those] = sum_over_ranks(squares[:, those], group).to(squares)
    return squares.sqrt().to(lengths.device)


def _sharers(weights: Sequence[Tensor]) -> dict[Any, list[int]]:
    """The process groups over which weights are sharded, and which weights, in the same order on every process."""
    found: dict[Any, list[int]] = {}
    for place, weight in enumerate(weights):
        if isinstance(weight, DTensor):
            for dimension, placement in enumerate(weight.placements):
                if not placement.is_replicate():
                    found.setdefault(weight.device_mesh.get_group(dimension), []).append(place)
    return found
