"""The few operations that a step needs, on Python numbers and on tensors: an equation is written once, for both.

Invalid arguments give NaN or infinity, never an exception, as they do in torch.
"""

import math
from typing import Any, Protocol

import torch
from torch import Tensor


class Operations(Protocol):
    """What `HOST` and `DEVICE` have in common."""

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

    def at_most(self, x: Any, high: int) -> Any:
        """x, a whole number, or the limit."""

    def constant(self, value: float, like: Any) -> Any:
        """A number in the shape of another."""


class _Host:
    """On Python's own numbers."""

    isfinite = staticmethod(math.isfinite)
    isnan = staticmethod(math.isnan)
    at_most = staticmethod(min)

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


class _Device:
    """On tensors; nothing is read back, and `torch.vmap` can batch all of it."""

    isfinite = staticmethod(torch.isfinite)
    isnan = staticmethod(torch.isnan)
    invert = staticmethod(torch.logical_not)
    sqrt = staticmethod(torch.sqrt)
    exp = staticmethod(torch.exp)

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Any:
        return torch.where(condition, a, b)

    @staticmethod
    def clamp(x: Tensor, low: float, high: float) -> Tensor:
        return torch.clamp(x, low, high)

    @staticmethod
    def constant(value: float, like: Tensor) -> Tensor:
        return torch.full_like(like, value)

    @staticmethod
    def log(x: float | Tensor) -> float | Tensor:
        return x.log() if isinstance(x, Tensor) else math.log(x)

    @staticmethod
    def at_most(x: Tensor, high: int) -> Tensor:
        return torch.clamp(x, max=high)


HOST: Operations = _Host()
DEVICE: Operations = _Device()
