"""ScheduleFree+ (Defazio 2026, arXiv 2605.19095): Schedule-Free over Adam, with Polyak's step in place of an LR.

Gradients g and losses f are those at y; the weights to evaluate are x:

    gamma = lr max(0, f + beta <g, z - x>) / (sqrt(pi / 2) |g|_1)
    z <- z - gamma^2 wd y - gamma u,    u = m / (sqrt(v) + eps), Adam's direction
    x <- (1 - c) x + c z,    c = gamma_max^2 / (the sum of gamma_max^2 so far)
    y <- beta x + (1 - beta) z

gamma_max is the largest gamma so far. In the first `warmup_steps` steps c = 1: as long as the warm-up of lr, or twice that. This is
the class in the repository of `schedulefree` without the options that are off by default there; releases up to 1.4.1 lack it.
Weight decay is multiplied by gamma^2: it is 0, or as large as 20.
"""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mlrsnet_lab import checks
from mlrsnet_lab.optimizers.adam_h import direction
from mlrsnet_lab.optimizers.plain import Make


def schedule_free_plus(
    *, momentum: float = 0.9, beta1: float = 0.9, beta2: float = 0.95, warmup_steps: int = 0
) -> Make:
    """The authors' defaults, at an LR of 1. `momentum`: beta between x and z."""
    betas = checks.below_one("beta1", beta1), checks.below_one("beta2", beta2)
    steps = checks.whole_number("warmup_steps", warmup_steps, 0)
    return partial(ScheduleFreePlus, momentum=checks.below_one("momentum", momentum), betas=betas, warmup_steps=steps)


class ScheduleFreePlus(Optimizer):
    """The optimizer of this file's equations. Weights are y while it trains; `eval()` puts x in their place, `train()` y again.

    >>> weight = nn.Parameter(torch.tensor([2.0]))
    >>> optimizer = ScheduleFreePlus([weight])
    >>> optimizer.train()
    >>> for _ in range(100):
    ...     optimizer.zero_grad()
    ...     loss = weight.square().sum()
    ...     loss.backward()
    ...     _ = optimizer.step(lambda: loss)
    >>> optimizer.eval()
    >>> abs(weight.item()) < 0.2
    True
    """

    reads_loss = True
    """`step` needs a closure that returns the loss."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float = 1.0,
        *,
        momentum: float = 0.9,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        warmup_steps: int = 0,
    ) -> None:
        options = {"momentum": momentum, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        kept = {"step": 0, "largest": 0.0, "weight_sum": 0.0, "d": 0.0, "is_training": True}
        super().__init__(parameters, {"lr": lr, "warmup_steps": warmup_steps, **options, **kept})

    def step(self, closure: Any = None) -> Any:
        """Move all weights that have gradients. The closure returns the loss of these gradients."""
        if closure is None:
            raise ValueError("closure must return the loss, got None: Polyak's step needs it; call step(lambda: loss)")
        if not self.param_groups[0]["is_training"]:
            raise RuntimeError("the weights must be those to train, got those to evaluate: call train() before a step")
        with torch.enable_grad():
            loss = closure()
        with torch.no_grad():
            polyak = self._polyak(float(loss.detach()))
            for group in self.param_groups:
                self._move(group, polyak)
        return loss

    def _polyak(self, loss: float) -> float:
        """gamma / lr, from all weights."""
        lengths, ahead = [], []
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    lengths.append(weight.grad.abs().sum())
                    if state := self.state[weight]:
                        ahead.append(group["momentum"] * (weight.grad * (state["z"] - state["x"])).sum())
        length = math.sqrt(math.pi / 2) * _sum(lengths)
        return max(0.0, loss + _sum(ahead)) / length if length else 0.0

    def _move(self, group: dict[str, Any], polyak: float) -> None:
        gamma, beta = group["lr"] * polyak, group["momentum"]
        group["d"], group["largest"] = polyak, max(gamma, group["largest"])
        c = 1.0
        if group["step"] >= group["warmup_steps"]:
            part = group["largest"] ** 2
            group["weight_sum"] += part
            c = part / group["weight_sum"] if part else 1.0
        for y in group["params"]:
            if y.grad is None:
                continue
            state = self.state[y]
            if not state:
                state["x"], state["z"] = y.clone(), y.clone()
            x, z = state["x"], state["z"]
            u = direction(state, y.grad, group["betas"], group["eps"])
            z.sub_(gamma**2 * group["weight_decay"] * y).sub_(gamma * u)
            x.lerp_(z, c)
            y.copy_(_between(x, z, beta))
        group["step"] += 1

    @torch.no_grad()
    def eval(self) -> None:
        """Put x in place of the weights."""
        self._switch(False)

    @torch.no_grad()
    def train(self) -> None:
        """Put y in place of the weights."""
        self._switch(True)

    def _switch(self, is_training: bool) -> None:
        for group in self.param_groups:
            for weight in group["params"] if group["is_training"] != is_training else ():
                if state := self.state[weight]:
                    x, z = state["x"], state["z"]
                    weight.copy_(_between(x, z, group["momentum"]) if is_training else x)
            group["is_training"] = is_training


def _between(x: Tensor, z: Tensor, beta: float) -> Tensor:
    return beta * x + (1 - beta) * z


def _sum(parts: list[Tensor]) -> float:
    return float(torch.stack(parts).sum()) if parts else 0.0
