"""L4 (Rolinek, Martius: L4, Practical loss-based stepsize adaptation for deep learning, NeurIPS 2018).

If the loss were linear, each step would close a fixed share of the gap between the batch's loss and the smallest loss that
seems attainable. Their Algorithm 1, with an estimate g of the gradient, the direction v and the batch's loss L:

    L_min <- gamma_0 L in the first step, min(L_min, L) in later ones
    eta   <- alpha (L - gamma L_min) / (g . v + eps)
    w     <- w - eta v
    L_min <- (1 + 1/tau) L_min

L4Mom has g = v = m; L4Adam has g = m and v = m / (sqrt(s) + eps_adam). m and s are averages of the gradient and of its
square with time scales 10 and 1000 (decays 1 - 1/10 and 1 - 1/1000), corrected for their start at 0 as in Adam.

Weight decay is part of the objective: weight_decay w is added to the gradient and weight_decay |w|^2 / 2 to the loss.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from mlrsnet_lab import checks
from mlrsnet_lab.baselines.base import (
    Baseline,
    Rule,
    States,
    Tensors,
    adam,
    betas,
    dot,
    first_moment,
    number,
    with_gradients,
)

FORMS = ("momentum", "adam")


class L4(Baseline):
    """L4Mom and L4Adam: the step size follows from the loss, so there is no LR to choose.

    Call `step(loss)` instead of `step()`. With the batch's loss L, the averaged gradient g and the direction v:

        eta   <- alpha (L - gamma L_min) / (g . v + eps)
        w     <- w - eta v
        L_min <- (1 + 1/tau) L_min, after L_min <- gamma_0 L in the first step and min(L_min, L) in later ones

    Args:
        params: parameters.
        form: "momentum" (L4Mom) or "adam" (L4Adam).
        fraction: alpha, the share of the gap that a step should close. The MLR-SNet paper searches 0.1 to 0.005 for text.
        target: gamma; gamma L_min is the loss that seems attainable.
        initial_target: gamma_0; gamma_0 times the first loss is the first L_min.
        forget_steps: tau; L_min grows by 1/tau per step, so that old losses are forgotten.
        betas: decays of the two averages. With form "momentum", (0, ...) is L4 on plain SGD.
        eps: added to g . v.
        adam_eps: added to the square root.
        weight_decay: the weights times this are added to the gradient.

    >>> w = torch.nn.Parameter(torch.tensor([2.0]))
    >>> optimizer = L4([w])
    >>> loss = (w**2).sum()
    >>> loss.backward()
    >>> optimizer.step(loss)
    >>> optimizer.param_groups[0]["lr"]  # 0.15 (4 - 0.9 * 0.75 * 4) / 4^2
    0.0121...
    """

    found: ClassVar[Mapping[str, Any]] = {"lr": 0.0, "min_loss": None}
    rules: ClassVar[Mapping[str, Rule]] = {
        "form": lambda name, value: checks.one_of(name, value, FORMS),
        "fraction": checks.positive,
        "target": checks.below_one,
        "initial_target": checks.below_one,
        "forget_steps": checks.positive,
        "eps": checks.positive,
        "betas": betas,
        "adam_eps": checks.positive,
        "weight_decay": checks.not_negative,
    }

    def __init__(
        self,
        params: Any,
        form: str = "momentum",
        fraction: float = 0.15,
        target: float = 0.9,
        initial_target: float = 0.75,
        forget_steps: float = 1000.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-12,
        adam_eps: float = 1e-4,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params,
            form=form,
            fraction=fraction,
            target=target,
            initial_target=initial_target,
            forget_steps=forget_steps,
            eps=eps,
            betas=betas,
            adam_eps=adam_eps,
            weight_decay=weight_decay,
        )

    @torch.no_grad()
    def step(self, loss: Tensor | float) -> None:  # type: ignore[override]
        """Take a step along the gradients in `.grad`, as long as the loss of the same batch says."""
        group = self.group
        parameters, gradients = with_gradients(group)
        L = number("the loss", loss)
        if group["weight_decay"]:
            L += group["weight_decay"] / 2 * dot((p, p) for p in parameters)
        if not math.isfinite(L) or not math.isfinite(dot((g, g) for g in gradients)):
            self._skip("a loss or a gradient")
            return
        if L < 0:
            raise ValueError(
                f"the loss must be >= 0 for L4, got {L}: L4 assumes that no loss is below 0; add a constant"
            )
        if not parameters:
            raise RuntimeError("no parameter has a gradient: call loss.backward() before step(loss)")
        L_min = group["initial_target"] * L if group["min_loss"] is None else min(group["min_loss"], L)
        g, v = self._estimates(gradients, [self.state[p] for p in parameters])
        eta = group["fraction"] * (L - group["target"] * L_min) / (dot(zip(g, v, strict=True)) + group["eps"])
        torch._foreach_add_(parameters, v, alpha=-eta)
        group["lr"], group["min_loss"] = eta, (1 + 1 / group["forget_steps"]) * L_min

    def _estimates(self, gradients: Tensors, states: States) -> tuple[Tensors, Tensors]:
        """g and v: m and m, or m and Adam's direction."""
        if self.group["form"] == "adam":
            return adam(states, gradients, self.group["betas"], self.group["adam_eps"])
        m = first_moment(states, gradients, self.group["betas"][0])
        return m, m
