"""Hypergradient descent (Baydin, Cornish, Martinez Rubio, Schmidt, Wood: Online Learning Rate Adaptation, ICLR 2018).

Step t moves the weights from w_{t-1} to w_t along a direction d_t that does not depend on the LR, and g_{t+1} is the
gradient at w_t:

    w_t = w_{t-1} - alpha_t d_t                       g_{t+1} = grad f(w_t)
    d f(w_t) / d alpha_t = g_{t+1} . (d w_t / d alpha_t) = -g_{t+1} . d_t

So the next step's gradient says whether the last step was too long. With beta for `hyper_lr`:

    alpha_{t+1} = alpha_t + beta g_{t+1} . d_t        w_{t+1} = w_t - alpha_{t+1} d_{t+1}

The choice of d makes this SGD-HD, SGDN-HD or Adam-HD. Weight decay is part of g. As in the paper, alpha may become negative.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from mlrsnet_lab import checks
from mlrsnet_lab.baselines.base import (
    Baseline,
    Rule,
    States,
    Tensors,
    adam,
    betas,
    dot,
    flag,
    lr,
    lr_of,
    recall,
    remember,
    with_gradients,
)


class HypergradientDescent(Baseline):
    """Base class. `_directions` gives d_t, and advances the parameters' state."""

    def _directions(self, gradients: Tensors, states: States) -> Tensors:
        raise NotImplementedError

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Adapt the LR to the gradients in `.grad`, then take a step."""
        group = self.group
        parameters, gradients = with_gradients(group)
        slope = -dot(zip(gradients, self._last_directions(parameters, gradients), strict=True))
        if not math.isfinite(slope):
            self._skip("a gradient")
            return
        group["lr"], group["hypergradient"] = lr_of(group) - group["hyper_lr"] * slope, slope
        for p in group["params"]:
            if p.grad is None:  # it does not move in this step
                self.state.get(p, {}).pop("direction", None)
        if parameters:
            states = [self.state[p] for p in parameters]
            directions = remember(states, "direction", self._directions(gradients, states))
            torch._foreach_add_(parameters, directions, alpha=-group["lr"])

    def _last_directions(self, parameters: Tensors, gradients: Tensors) -> Tensors:
        """d_t. Zeros before the first step: their product with a gradient that is not finite is not finite either."""
        return recall([self.state.get(p, {}) for p in parameters], "direction", gradients)


class HDSGD(HypergradientDescent):
    """SGD with hypergradient descent: SGD-HD, its heavy-ball form, and SGDN-HD (Nesterov).

        v_t = mu v_{t-1} + g_t
        d_t = g_t              SGD-HD (mu = 0)
              v_t              heavy ball
              g_t + mu v_t     SGDN-HD (Nesterov), in torch's form

        alpha_{t+1} = alpha_t + beta g_{t+1} . d_t
        w_{t+1} = w_t - alpha_{t+1} d_{t+1}

    Args:
        params: parameters.
        lr: the initial alpha.
        hyper_lr: beta. The MLR-SNet paper searches 1e-3 to 1e-7 for pictures and 1 to 0.05 for text. 0 is plain SGD.
        momentum: mu.
        nesterov: use SGDN-HD.
        weight_decay: the weights times this are added to the gradient.

    >>> w = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = HDSGD([w], lr=0.1, hyper_lr=0.01)
    >>> for _ in range(2):
    ...     optimizer.zero_grad()
    ...     (w**2).sum().backward()
    ...     optimizer.step()
    >>> round(optimizer.param_groups[0]["lr"], 4)  # 0.1 + 0.01 * 1.6 * 2
    0.132
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "lr": lr,
        "hyper_lr": checks.not_negative,
        "momentum": checks.below_one,
        "nesterov": flag,
        "weight_decay": checks.not_negative,
    }

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        hyper_lr: float = 1e-3,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params, lr=lr, hyper_lr=hyper_lr, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay
        )
        if nesterov and not momentum:
            raise ValueError(f"momentum must be > 0 with nesterov=True, got {momentum!r}")

    def _directions(self, gradients: Tensors, states: States) -> Tensors:
        mu = self.group["momentum"]
        if not mu:
            return torch._foreach_mul(
                gradients, 1.0
            )  # copies, because the next backward() may write into the gradients
        v = torch._foreach_add(gradients, recall(states, "momentum", gradients), alpha=mu)
        remember(states, "momentum", v)
        return torch._foreach_add(gradients, v, alpha=mu) if self.group["nesterov"] else v


class HDAdam(HypergradientDescent):
    """Adam with hypergradient descent (Adam-HD).

        m_t = beta1 m_{t-1} + (1 - beta1) g_t        s_t = beta2 s_{t-1} + (1 - beta2) g_t^2
        d_t = (m_t / (1 - beta1^t)) / (sqrt(s_t / (1 - beta2^t)) + eps)

        alpha_{t+1} = alpha_t + beta g_{t+1} . d_t
        w_{t+1} = w_t - alpha_{t+1} d_{t+1}

    Args:
        params: parameters.
        lr: the initial alpha.
        hyper_lr: beta; 1e-7 to 1e-8 in the paper. 0 is plain Adam.
        betas: decays of the two averages. The MLR-SNet paper has beta1 = 0 for text.
        eps: added to the square root.
        weight_decay: the weights times this are added to the gradient.

    >>> w = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = HDAdam([w], lr=0.1, hyper_lr=0.01)
    >>> for _ in range(2):
    ...     optimizer.zero_grad()
    ...     (w**2).sum().backward()
    ...     optimizer.step()
    >>> round(optimizer.param_groups[0]["lr"], 4)  # 0.1 + 0.01 * (2 * 0.9) * 1, because the first direction is 1
    0.118
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "lr": lr,
        "hyper_lr": checks.not_negative,
        "betas": betas,
        "eps": checks.positive,
        "weight_decay": checks.not_negative,
    }

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        hyper_lr: float = 1e-7,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, hyper_lr=hyper_lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def _directions(self, gradients: Tensors, states: States) -> Tensors:
        return adam(states, gradients, self.group["betas"], self.group["eps"])[1]
