"""AdamH, Adam-Hyperball (Wen, Dang, Lyu, Ma, Liang 2025): the norm of every matrix stays what it was, and of every step too.

    W <- Norm(W - eta |W_0| Norm(u)) |W_0|,    Norm(x) = x / |x|,    u = m / (sqrt(v) + eps), Adam's direction

|.| is Frobenius. Vectors, embeddings and weights outside of torch's layers (a ViT's positions) have AdamW's step, at an LR of
`adam_share` eta. A matrix that begins at 0 has no direction to keep a norm in, and is trained as vectors are.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mlrsnet_lab import checks


def adam_h(
    *, beta1: float = 0.9, beta2: float = 0.98, eps: float = 1e-8, adam_share: float = 0.4
) -> Callable[..., Optimizer]:
    """From a model. An LR of 0.02, Adam's of 0.008 and these betas trained the authors' smallest network."""
    betas = checks.below_one("beta1", beta1), checks.below_one("beta2", beta2)
    options = {"eps": checks.positive("eps", eps), "adam_share": checks.positive("adam_share", adam_share)}

    def make(model: nn.Module, **more: Any) -> Optimizer:
        return AdamH(model.parameters(), plain=outside(model), betas=betas, **options, **more)

    return make


def outside(model: nn.Module) -> list[nn.Parameter]:
    """Embeddings, and weights that belong to none of torch's layers.

    >>> sum(weight.numel() for weight in outside(nn.Sequential(nn.Embedding(9, 2), nn.Linear(2, 9))))
    18
    """
    return [
        weight
        for module in model.modules()
        if isinstance(module, nn.Embedding) or not type(module).__module__.startswith("torch.nn")
        for weight in module.parameters(recurse=False)
    ]


class AdamH(Optimizer):
    """The optimizer of this file's equation.

    Args:
        parameters: all weights.
        lr: eta, the size of a step as a share of |W_0|.
        plain: matrices that have AdamW's step.
        betas, eps: Adam's.
        weight_decay: AdamW's, where its step is; a matrix whose norm is kept needs none.
        adam_share: LR of AdamW's steps / eta.

    >>> weight = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    >>> optimizer = AdamH([weight], lr=0.1)
    >>> weight.square().sum().backward()
    >>> optimizer.step()
    >>> round(weight.norm().item(), 4)
    5.0
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float = 0.02,
        *,
        plain: Iterable[nn.Parameter] = (),
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        adam_share: float = 0.4,
    ) -> None:
        self.plain = set(plain)
        options = {"betas": betas, "eps": eps, "weight_decay": weight_decay, "adam_share": adam_share}
        super().__init__(parameters, {"lr": lr, **options})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Move all weights that have gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, group)
        return loss

    def _move(self, weight: Tensor, group: dict[str, Any]) -> None:
        state, eta = self.state[weight], group["lr"]
        if not state:
            state["norm"] = 0.0 if weight.ndim < 2 or weight in self.plain else float(weight.norm())
        u = direction(state, weight.grad, group["betas"], group["eps"])
        if state["norm"] > 0:
            tiny = torch.finfo(weight.dtype).tiny
            weight.sub_(u * (eta * state["norm"] / u.norm().clamp(min=tiny)))
            weight.mul_(state["norm"] / weight.norm().clamp(min=tiny))
        else:
            lr = eta * group["adam_share"]
            weight.mul_(1 - lr * group["weight_decay"]).sub_(lr * u)


def direction(state: dict[str, Any], gradient: Any, betas: tuple[float, float], eps: float) -> Tensor:
    """Adam's u = m / (sqrt(v) + eps), with means m of gradients and v of their squares that are corrected for starting at 0."""
    if "step" not in state:
        state.update(step=0, m=torch.zeros_like(gradient), v=torch.zeros_like(gradient))
    state["step"] += 1
    m, v = state["m"].lerp_(gradient, 1 - betas[0]), state["v"].lerp_(gradient.square(), 1 - betas[1])
    first, second = (1 - beta ** state["step"] for beta in betas)
    return (m / first) / ((v / second).sqrt() + eps)
