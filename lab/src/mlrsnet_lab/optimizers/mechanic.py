"""Mechanic (Cutkosky, Defazio, Mehta 2023): an online learner scales all that another optimizer has done so far.

Delta is the sum of the other optimizer's steps, and the weights are x = x_0 + S Delta, S = s_1 + ... + s_n. With gradients g at x,
and for each of n = 6 decays beta_i = 1 - 10^-i:

    h = <Delta, g + lambda S |g| x / |x|>
    m_i <- max(beta_i m_i, |h| + eps),    v_i <- beta_i^2 v_i + h^2
    r_i <- max(0, beta_i r_i - s_i clip(h, -m_i, m_i)),    with the m_i before
    s_i <- (s_init m_i / n + r_i) / (sqrt(v_i) + eps)

The paper has no clip: its authors added it in optax. The other optimizer has an LR of 1, its schedule and its weight decay.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from mlrsnet_lab import checks
from mlrsnet_lab.optimizers.plain import Make

DECAYS = 1 - 0.1 ** torch.arange(1, 7, dtype=torch.float64)
EPS = 1e-8


def mechanic_sgd(*, momentum: float = 0.0, s_init: float = 1e-8, decay: float = 0.01) -> Make:
    """Over SGD."""
    momentum = checks.below_one("momentum", momentum)
    return _over(lambda parameters, **more: SGD(parameters, momentum=momentum, **more), s_init, decay)


def mechanic_adam(
    *, beta1: float = 0.9, beta2: float = 0.999, decouple: bool = False, s_init: float = 1e-8, decay: float = 0.01
) -> Make:
    """Over Adam; `decouple`: over AdamW."""
    betas, kind = (checks.below_one("beta1", beta1), checks.below_one("beta2", beta2)), AdamW if decouple else Adam
    return _over(lambda parameters, **more: kind(parameters, betas=betas, **more), s_init, decay)


def _over(make: Callable[..., Optimizer], s_init: float, decay: float) -> Make:
    s_init, decay = checks.positive("s_init", s_init), checks.not_negative("decay", decay)
    return lambda parameters, **more: Mechanic(make(parameters, **more), s_init=s_init, decay=decay)


class Mechanic(Optimizer):
    """The optimizer of this file's equations.

    Args:
        base: the other optimizer, which has not stepped yet.
        s_init: what S begins near; too small is safe.
        decay: lambda.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = Mechanic(SGD([weight], lr=1.0))
    >>> for _ in range(100):
    ...     optimizer.zero_grad()
    ...     weight.square().sum().backward()
    ...     optimizer.step()
    >>> abs(weight.item()) < 0.2
    True
    """

    def __init__(self, base: Optimizer, *, s_init: float = 1e-8, decay: float = 0.01) -> None:
        super().__init__(base.param_groups, {"d": 0.0})
        self.base, self.s_init, self.decay = base, s_init, decay
        base.param_groups = self.param_groups  # one LR for both
        self.tuner = {name: torch.zeros_like(DECAYS) for name in ("s", "m", "v", "r")}

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Step the other optimizer, then scale all its steps anew."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        weights = [weight for group in self.param_groups for weight in group["params"] if weight.grad is not None]
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {"start": weight.clone(), "delta": torch.zeros_like(weight)}
        h = self._slope(weights)
        before = [weight.clone() for weight in weights]
        self.base.step()
        scale = self._tune(h)
        for weight, old in zip(weights, before, strict=True):
            state = self.state[weight]
            state["delta"].add_(weight - old)
            weight.copy_(state["start"] + scale * state["delta"])
        for group in self.param_groups:
            group["d"] = scale
        return loss

    def _slope(self, weights: Iterable[Tensor]) -> float:
        """h: how fast the loss rises with S."""
        parts = []
        for x in weights:
            delta, g = self.state[x]["delta"], torch.zeros_like(x) if x.grad is None else x.grad
            parts.append(torch.stack([(delta * g).sum(), (delta * x).sum(), g.square().sum(), x.square().sum()]))
        if not parts:
            return 0.0
        along, outward, g2, x2 = torch.stack(parts).sum(0).tolist()
        return float(along + self.decay * float(self.tuner["s"].sum()) * g2**0.5 * outward / (x2**0.5 + EPS))

    def _tune(self, h: float) -> float:
        """The next S."""
        s, m, v, r = (self.tuner[name] for name in ("s", "m", "v", "r"))
        r = (DECAYS * r - s * torch.full_like(m, h).clamp(-m, m)).clamp(min=0)
        m = (DECAYS * m).clamp(min=abs(h) + EPS)
        v = DECAYS.square() * v + h**2
        s = (self.s_init * m / len(DECAYS) + r) / (v.sqrt() + EPS)
        self.tuner = {"s": s, "m": m, "v": v, "r": r}
        return float(s.sum())

    def state_dict(self) -> dict[str, Any]:
        """The sums, the other optimizer's state, and the learner's."""
        return {**super().state_dict(), "base": self.base.state_dict(), "tuner": dict(self.tuner)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state."""
        super().load_state_dict({name: state_dict[name] for name in ("state", "param_groups")})
        self.base.load_state_dict(state_dict["base"])
        self.base.param_groups = self.param_groups
        self.tuner = {name: numbers.cpu() for name, numbers in state_dict["tuner"].items()}
