"""Optimizer updates for many trainings at once, each with its own LR. Step for step equal to `torch.optim`.

Weights, gradients and state are (members, size), one training per row; lr and weight_decay are (members, 1). Updates work
in place, in float32 or float64, and never wait for the device. They are frozen, so that tasks with equal ones train side by side.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mlrsnet_lab import checks

State = dict[str, Tensor]


@dataclass(frozen=True)
class SGD:
    """SGD with momentum, as `torch.optim.SGD`.

        d <- g + weight_decay w
        b <- momentum b + d
        w <- w - lr b                       (Nesterov: w - lr (d + momentum b))

    Args:
        momentum: in [0, 1).
        nesterov: look ahead; needs a momentum.
    """

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        checks.below_one("momentum", self.momentum)
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum > 0, got 0: pass one, such as 0.9")

    @property
    def group(self) -> dict[str, Any]:
        """What laws and ranges read of a parameter group of torch's own optimizer of this kind."""
        return {"momentum": self.momentum, "dampening": 0.0, "nesterov": self.nesterov}

    @property
    def is_gradient(self) -> bool:
        """Whether a step is the gradient, but for weight decay."""
        return not self.momentum

    def begin(self, weights: Tensor) -> State:
        """The momentum buffer, if there is momentum."""
        return {"momentum": torch.zeros_like(weights)} if self.momentum else {}

    def apply(self, weights: Tensor, gradients: Tensor, state: State, lr: Tensor, weight_decay: Tensor) -> None:
        """Take one step, in place."""
        direction = torch.addcmul(gradients, weights, weight_decay)
        if self.momentum:
            buffer = state["momentum"].mul_(self.momentum).add_(direction)
            direction = direction.add_(buffer, alpha=self.momentum) if self.nesterov else buffer
        weights.addcmul_(direction, lr, value=-1)


@dataclass(frozen=True)
class Adam:
    """Adam and AdamW, as in `torch.optim`.

        m <- beta1 m + (1 - beta1) g
        v <- beta2 v + (1 - beta2) g^2
        w <- w - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

    Args:
        beta1, beta2: decays of the two averages, in [0, 1).
        eps: added to the square root.
        decoupled: multiply w by 1 - lr weight_decay first (AdamW), instead of adding weight_decay w to g (Adam).
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decoupled: bool = False
    is_gradient = False

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            checks.below_one(name, getattr(self, name))
        checks.positive("eps", self.eps)

    @property
    def group(self) -> dict[str, Any]:
        """See `SGD`."""
        return {"betas": (self.beta1, self.beta2), "eps": self.eps}

    def begin(self, weights: Tensor) -> State:
        """Both averages, and beta1^t and beta2^t. The powers are float64, because beta2^t stays near 1 for long."""
        powers = torch.ones(2, dtype=torch.float64, device=weights.device)
        return {"m": torch.zeros_like(weights), "v": torch.zeros_like(weights), "powers": powers}

    def apply(self, weights: Tensor, gradients: Tensor, state: State, lr: Tensor, weight_decay: Tensor) -> None:
        """Take one step, in place."""
        if self.decoupled:
            weights.mul_(1 - lr * weight_decay)
        else:
            gradients = torch.addcmul(gradients, weights, weight_decay)
        m = state["m"].lerp_(gradients, 1 - self.beta1)
        v = state["v"].mul_(self.beta2).addcmul_(gradients, gradients, value=1 - self.beta2)
        state["powers"][0].mul_(self.beta1)
        state["powers"][1].mul_(self.beta2)
        first, second = (1 - state["powers"]).unbind()
        root = v.sqrt().mul_(second.rsqrt().to(v)).add_(self.eps)
        weights.addcdiv_(m * (lr / first.to(lr)), root, value=-1)


Update = SGD | Adam
UPDATES: dict[str, Update] = {"sgd": SGD(), "sgdm": SGD(momentum=0.9), "adam": Adam(), "adamw": Adam(decoupled=True)}
"""Updates by name. The lab uses the same names."""


def find(optimizer: str | Update) -> Update:
    """The update of a name, or the one that is given."""
    if isinstance(optimizer, SGD | Adam):
        return optimizer
    return UPDATES[checks.one_of("optimizer", optimizer, UPDATES)]
