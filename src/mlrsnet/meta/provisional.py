"""The mathematics of Algorithm 1 for the user's own optimizer: one real step, whose LR is chosen afterwards.

For every optimizer in `LINEAR`, the new weights lie on a straight line in the LR, w(alpha) = w_t - alpha d. The optimizer's
state (momentum, second moments) does not depend on alpha. So one real step gives d, and

    d L_val(w(alpha)) / d alpha = -<grad L_val(w(alpha)), d>

takes one validation gradient and one dot product: no functional model, no copy of the optimizer, no second-order graph.
alpha is the LR of the main group; the other groups keep their ratio to it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, optim
from torch.optim import Optimizer

from mlrsnet import _shards
from mlrsnet.ranks import Group, num_ranks, sum_over_ranks

LINEAR = {
    getattr(optim, name)
    for name in ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "Muon")
    if hasattr(optim, name)
}
"""Optimizers whose step is linear in the LR and whose state does not depend on it. The exact type counts."""

MEASURING_LR = 2.0**12
"""The LR of the step that d is read from. At a small LR, w_new - w_old loses most digits of d. A power of two scales exactly."""


def check_linear(optimizer: Optimizer, assume_linear: bool) -> None:
    """Refuse optimizers that are not known to be linear in the LR, and weights with too few digits."""
    if not assume_linear and type(optimizer) not in LINEAR:
        known = ", ".join(sorted(kind.__name__ for kind in LINEAR))
        raise TypeError(
            f"optimizer must take steps that are linear in its LR, and {type(optimizer).__name__} is not known to (its step "
            f"sizes, averages or line searches may depend on the LR in other ways): use one of {known}, or pass "
            "assume_linear=True if w_new = w_old - lr * d, where neither d nor the optimizer's state depends on lr"
        )
    check_dtypes(optimizer)


def check_dtypes(optimizer: Optimizer) -> None:
    """Refuse weights with too few digits to read a step from."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.dtype not in (torch.float32, torch.float64):
                raise TypeError(
                    f"the optimizer's parameters must be float32 or float64, got {parameter.dtype}: the step is read from "
                    "the weights; keep them in float32 and use autocast"
                )


class Provisional:
    """One optimizer step whose LR can still change. The weights are at w_t - alpha d.

    It keeps one copy of the weights: their change at `MEASURING_LR`. Every other step is a multiple of it.

    Args:
        optimizer: the user's, with gradients in place, and with LRs of alpha times `ratios`.
        take: takes the step: `optimizer.step`, or a GradScaler's.
        ratios: the groups' LRs relative to alpha.
        alpha: the first LR.
    """

    @torch.no_grad()
    def __init__(self, optimizer: Optimizer, take: Callable[[], Any], ratios: Sequence[float], alpha: float) -> None:
        check_dtypes(optimizer)  # groups may have been added
        groups, lrs = optimizer.param_groups, [group["lr"] for group in optimizer.param_groups]
        moving = [ratio if float(lr) else 0.0 for lr, ratio in zip(lrs, ratios, strict=True)]
        pairs = [(p, ratio) for group, ratio in zip(groups, moving, strict=True) for p in group["params"]]
        self.parameters = [p for p, ratio in pairs if ratio and p.grad is not None]
        _check_gradients(self.parameters)
        old = torch._foreach_add(self.parameters, 0)  # a copy in few kernels
        try:
            for group, ratio in zip(groups, moving, strict=True):
                group["lr"] = MEASURING_LR * ratio
            take()
        finally:  # even after an error, nobody else must step at the measuring LR
            for group, lr in zip(groups, lrs, strict=True):
                group["lr"] = lr
        self.change = torch._foreach_sub(self.parameters, old)
        torch._foreach_add_(old, self.change, alpha=alpha / MEASURING_LR)
        for parameter, new in zip(self.parameters, old, strict=True):
            parameter.copy_(new)
        self.alpha = alpha

    @torch.no_grad()
    def go_to(self, alpha: float) -> None:
        """Put the weights at w_t - alpha d, for another alpha."""
        torch._foreach_add_(self.parameters, self.change, alpha=(alpha - self.alpha) / MEASURING_LR)
        self.alpha = alpha

    @torch.no_grad()
    def slope(self, loss: Tensor, gradients: Mapping[Tensor, Tensor], group: Group = None) -> tuple[float, float]:
        """L_val and d L_val / d alpha = -<grad L_val, d> at the current weights, both averaged over the ranks.

        Where gradients are shards of an average over the ranks, their dot products add up instead.
        """
        dots = [
            _dot(gradients[p], change) for p, change in zip(self.parameters, self.change, strict=True) if p in gradients
        ]
        value = loss.detach().reshape(()).double()
        total = torch.stack([dot.to(value.device) for dot in dots]).double().sum() if dots else 0.0 * value
        loss_sum, dot_sum = sum_over_ranks(torch.stack((value, total)), group).tolist()
        ranks = num_ranks(group)
        is_sharded = any(map(_shards.is_sharded, self.parameters))
        return loss_sum / ranks, dot_sum / (1 if is_sharded else ranks) / MEASURING_LR


def _check_gradients(parameters: Sequence[Tensor]) -> None:
    if not parameters:
        raise RuntimeError(
            "no parameter of the optimizer has a gradient and an LR above 0: call loss.backward() before meta.step(loss)"
        )
    if any(p.grad.is_sparse for p in parameters if p.grad is not None):
        raise TypeError("gradients must be dense for meta-training, got a sparse one: pass sparse=False to its layer")


def _dot(gradient: Tensor, change: Tensor) -> Tensor:
    """<v, change>, or that of this rank's shards."""
    v, change = (_shards.local(tensor).reshape(-1) for tensor in (gradient, change))
    with torch.autocast(v.device.type, enabled=False):
        return torch.dot(v, change)
