"""Optimizer updates for many trainings at once: one row a training, an LR a row. Equal to `torch.optim` step for step.

Weights, gradients and state are (members, size); lr and weight_decay are (members, 1). All in place, nothing is read back.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from mlrsnet import _check
from mlrsnet._lookahead import MEASURING_LR
from mlrsnet.gamma import optimizer_scale

State = dict[str, Tensor]


class Update(Protocol):
    """One kind of optimizer, a frozen dataclass: equal ones train side by side."""

    @property
    def scale(self) -> float:
        """What carries SGD's range of the LR over to it."""

    def begin(self, weights: Tensor) -> State:
        """The state before the first step."""

    def apply(self, weights: Tensor, gradients: Tensor, state: State, lr: Tensor, weight_decay: Tensor) -> None:
        """One step."""


@dataclass(frozen=True)
class SGD:
    """d = g + decay w;  b = momentum b + d;  w -= lr b  (Nesterov: lr (d + momentum b))."""

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        _check.below_one("momentum", self.momentum)
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum > 0, got 0: pass one, such as 0.9")

    @property
    def scale(self) -> float:
        """1 - momentum."""
        return optimizer_scale({"momentum": self.momentum})

    def begin(self, weights: Tensor) -> State:
        """The momentum's buffer, where there is one."""
        return {"momentum": torch.zeros_like(weights)} if self.momentum else {}

    def apply(self, weights: Tensor, gradients: Tensor, state: State, lr: Tensor, weight_decay: Tensor) -> None:
        """One step."""
        direction = torch.addcmul(gradients, weights, weight_decay)
        if self.momentum:
            buffer = state["momentum"].mul_(self.momentum).add_(direction)
            direction = direction.add_(buffer, alpha=self.momentum) if self.nesterov else buffer
        weights.addcmul_(direction, lr, value=-1)


@dataclass(frozen=True)
class Adam:
    """m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w -= lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps).

    Weight decay goes into g, or, `decoupled` (AdamW), w is first multiplied by 1 - lr decay.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decoupled: bool = False

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            _check.below_one(name, getattr(self, name))
        _check.positive("eps", self.eps)

    @property
    def scale(self) -> float:
        """That of all adaptive optimizers."""
        return optimizer_scale({"betas": (self.beta1, self.beta2)})

    def begin(self, weights: Tensor) -> State:
        """Both moments, and b1^t and b2^t, in double: the second one stays near 1 for long."""
        powers = torch.ones(2, dtype=torch.float64, device=weights.device)
        return {"m": torch.zeros_like(weights), "v": torch.zeros_like(weights), "powers": powers}

    def apply(self, weights: Tensor, gradients: Tensor, state: State, lr: Tensor, weight_decay: Tensor) -> None:
        """One step."""
        if self.decoupled:
            weights.mul_(1 - lr * weight_decay)
        else:
            gradients = torch.addcmul(gradients, weights, weight_decay)
        m = state["m"].lerp_(gradients, 1 - self.beta1)
        v = state["v"].mul_(self.beta2).addcmul_(gradients, gradients, value=1 - self.beta2)
        state["powers"][0].mul_(self.beta1)
        state["powers"][1].mul_(self.beta2)
        first, second = (1 - state["powers"]).unbind()
        size = v.sqrt().mul_(second.rsqrt().to(v)).add_(self.eps)
        weights.addcdiv_(m * (lr / first.to(lr)), size, value=-1)


@dataclass(frozen=True)
class Relative:
    """lr |w| / |d| instead of lr, d being what the update would subtract at an LR of 1; see `mlrsnet._engine.relative`."""

    inner: Update

    @property
    def scale(self) -> float:
        """1: a relative step is the same part of the weights for every optimizer."""
        return 1.0

    def begin(self, weights: Tensor) -> State:
        """That of the update."""
        return self.inner.begin(weights)

    def apply(self, weights: Tensor, gradients: Tensor, state: State, lr: Tensor, weight_decay: Tensor) -> None:
        """One step."""
        before = weights.clone()
        self.inner.apply(weights, gradients, state, torch.full_like(lr, MEASURING_LR), weight_decay)
        direction = (before - weights) / MEASURING_LR
        ratio = before.norm(dim=1, keepdim=True) / direction.norm(dim=1, keepdim=True).clamp(min=1e-12)
        weights.copy_(before).addcmul_(direction, lr * ratio, value=-1)


UPDATES: dict[str, Update] = {"sgd": SGD(), "sgdm": SGD(momentum=0.9), "adam": Adam(), "adamw": Adam(decoupled=True)}
"""By the names that the lab uses too."""


def find(optimizer: "str | Update") -> Update:
    """An update by its name, or one that is given."""
    if isinstance(optimizer, str):
        return UPDATES[_check.one_of("optimizer", optimizer, UPDATES)]
    is_one = callable(getattr(optimizer, "apply", None)) and getattr(optimizer, "__hash__", None) is not None
    if not is_one or isinstance(optimizer, type):
        raise ValueError(
            f"optimizer must be one of {', '.join(UPDATES)} or a frozen dataclass like horizon.SGD, got {optimizer!r}"
        )
    return optimizer
