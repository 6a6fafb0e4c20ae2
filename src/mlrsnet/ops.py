"""The few operations that an equation needs, on Python numbers and on tensors: each equation is written once, for both.

Invalid arguments give NaN or infinity, never an exception, as they do in torch.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor


class Operations(Protocol):
    """What `HOST` and `DEVICE` have in common. Arrays are numpy's on the host."""

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """a where the condition holds, b elsewhere."""

    def invert(self, condition: Any) -> Any:
        """Not."""

    def isfinite(self, x: Any) -> Any:
        """Neither NaN nor infinite."""

    def isnan(self, x: Any) -> Any:
        """NaN."""

    def log(self, x: Any) -> Any:
        """Natural logarithm."""

    def sqrt(self, x: Any) -> Any:
        """Square root."""

    def exp(self, x: Any) -> Any:
        """e to the power of x."""

    def clamp(self, x: Any, low: float, high: float) -> Any:
        """x between two limits."""

    def constant(self, value: float, like: Any) -> Any:
        """A number in the shape of another."""

    def smaller(self, a: Any, b: Any) -> Any:
        """The smaller of two numbers."""

    def larger(self, a: Any, b: Any) -> Any:
        """The larger one of each pair of two arrays."""

    def relu(self, x: Any) -> Any:
        """max(x, 0) of an array."""

    def tanh(self, x: Any) -> Any:
        """Hyperbolic tangent of an array."""

    def product(self, matrix: Any, vector: Any) -> Any:
        """A matrix times a vector, or many of both."""

    def joined(self, vectors: Sequence[Any]) -> Any:
        """Some vectors as one, or many of each."""

    def stack(self, numbers: Iterable[Any], like: Any) -> Any:
        """Numbers along a new last dimension, in the type of an array."""

    def unstack(self, array: Any) -> Any:
        """The reverse of `stack`."""

    def keep(self, condition: Any, a: Any, b: Any) -> Any:
        """`where` for arrays that have more dimensions than the condition."""


class _Host:
    """On Python's own numbers, and numpy's arrays, whose calls cost a fifth of torch's at this size."""

    isfinite = staticmethod(math.isfinite)
    isnan = staticmethod(math.isnan)
    smaller = staticmethod(min)
    larger = staticmethod(np.maximum)
    tanh = staticmethod(np.tanh)
    product = staticmethod(np.dot)

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Any:
        return a if condition else b

    @staticmethod
    def invert(condition: Any) -> Any:
        return not condition

    @staticmethod
    def log(x: float) -> float:
        return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan

    @staticmethod
    def sqrt(x: float) -> float:
        return math.sqrt(x) if x >= 0 else math.nan

    @staticmethod
    def exp(x: float) -> float:
        try:
            return math.exp(x)
        except OverflowError:
            return math.inf

    @staticmethod
    def clamp(x: float, low: float, high: float) -> float:
        return min(max(x, low), high)

    @staticmethod
    def constant(value: float, like: Any) -> float:
        return value

    @staticmethod
    def relu(x: Any) -> Any:
        return np.maximum(x, 0)

    @staticmethod
    def joined(vectors: Sequence[Any]) -> Any:
        return np.concatenate(vectors, axis=-1)

    @staticmethod
    def stack(numbers: Iterable[float], like: Any) -> Any:
        return np.array(list(numbers), dtype=like.dtype)

    @staticmethod
    def unstack(array: Any) -> Any:
        return array.tolist()

    keep = where


class _Device:
    """On tensors; nothing is read back, and any leading dimensions are many trainings side by side."""

    isfinite = staticmethod(torch.isfinite)
    isnan = staticmethod(torch.isnan)
    invert = staticmethod(torch.logical_not)
    sqrt = staticmethod(torch.sqrt)
    exp = staticmethod(torch.exp)
    clamp = staticmethod(torch.clamp)
    larger = staticmethod(torch.maximum)
    relu = staticmethod(torch.relu)
    tanh = staticmethod(torch.tanh)
    constant = staticmethod(lambda value, like: torch.full_like(like, value))

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Any:
        return torch.where(condition, a, b)

    @staticmethod
    def log(x: Any) -> Any:
        return x.log() if isinstance(x, Tensor) else math.log(x)

    @staticmethod
    def smaller(a: Tensor, b: Any) -> Tensor:
        return torch.minimum(a, b) if isinstance(b, Tensor) else torch.clamp(a, max=b)

    @staticmethod
    def product(matrix: Tensor, vector: Tensor) -> Tensor:
        return (matrix @ vector.unsqueeze(-1)).squeeze(-1)

    @staticmethod
    def joined(vectors: Sequence[Tensor]) -> Tensor:
        return torch.cat(tuple(vectors), dim=-1)

    @staticmethod
    def stack(numbers: Iterable[Any], like: Tensor) -> Tensor:
        return torch.stack(
            torch.broadcast_tensors(*(torch.as_tensor(x, device=like.device) for x in numbers)), dim=-1
        ).to(like.dtype)

    @staticmethod
    def unstack(array: Tensor) -> Any:
        return array.unbind(-1)

    @staticmethod
    def keep(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch.where(condition.view(*condition.shape, *[1] * (a.ndim - condition.ndim)), a, b)


HOST: Operations = _Host()
DEVICE: Operations = _Device()  # type: ignore[assignment] # torch has more arguments


def leaves(state: Any) -> Iterator[Any]:
    """The numbers of nested named tuples, in order.

    >>> list(leaves((1, (2, 3), 4)))
    [1, 2, 3, 4]
    """
    for value in state:
        if isinstance(value, tuple):
            yield from leaves(value)
        else:
            yield value


def rebuilt(like: Any, values: Iterator[Any]) -> Any:
    """Nested named tuples of the same form, with other numbers: the reverse of `leaves`."""
    return type(like)._make(rebuilt(value, values) if isinstance(value, tuple) else next(values) for value in like)
