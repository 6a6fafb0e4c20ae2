"""The relative range: alpha_t = r_t |w_t| / |d_t|. Every step moves the weights by a fraction r_t of their own length.

w_t: all weights of the optimizer that have a gradient, as one vector. d_t: what the next step would subtract from them at an
LR of 1, with momentum, weight decay and the group's share, computed from gradients and the optimizer's state. A relative step
does not depend on the scale of weights or gradients, so one r serves networks whose LRs differ a hundredfold.

Gradients may still change after the loss has come: a GradScaler divides them, or they are clipped. So |w| / |d| is measured twice:
when the loss comes, and by `Hook` right before the step, with the gradients that the optimizer will use.
"""

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from mlrsnet._engine.contract import Rule

UNMEASURED = (
    "the schedule's relative range could not be measured, so the LR is practically 0: call step(loss) after loss.backward() and "
    "before zero_grad(), with weights that are not all 0"
)
SMALLEST_RATIO = 1e-12
"""Before anything has been measured."""


def initial_ratio(rule: Rule) -> float:
    """|w| / |d| before the first step: nothing has been measured. 1 if the range needs no measurement."""
    gamma = rule.schedule.card.gamma
    return SMALLEST_RATIO if gamma.is_relative or gamma.is_measured else 1.0


def check(optimizer: Optimizer) -> None:
    """Refuse optimizers whose direction is not known, and sharded weights."""
    if any(_is_sharded(parameter) for group in optimizer.param_groups for parameter in group["params"]):
        raise ValueError(
            "optimizer must have whole weights for a schedule with a relative range, got weights sharded over processes: use a "
            "schedule whose range is not relative, such as 'universal-2'"
        )
    if type(optimizer) not in (SGD, Adam, AdamW):  # a subclass may step another way
        raise ValueError(
            f"optimizer must be torch's SGD, Adam or AdamW for a schedule with a relative range, got {type(optimizer).__name__}: "
            "use one of them, or a schedule whose range is not relative, such as 'universal-2'"
        )


@torch.no_grad()
def ratio(optimizer: Optimizer, shares: Sequence[float]) -> Tensor:
    """|w| / |d|, a scalar on the weights' device. `shares`: the groups' LRs divided by alpha."""
    weights, directions = [], []
    for group, share in zip(optimizer.param_groups, shares, strict=True):
        members = [parameter for parameter in group["params"] if parameter.grad is not None]
        if members and share:  # a group whose LR is 0 does not move
            weights.append(_length(members))
            directions.append(share * _length([_direction(optimizer, group, parameter) for parameter in members]))
    if not weights:
        return torch.tensor(math.nan)
    w, d = (torch.stack([one.to(parts[0].device) for one in parts]).norm() for parts in (weights, directions))
    return w / d


class Measures(Protocol):
    """Who measures again before a step: an `Engine`."""

    def measure_again(self) -> None:
        """Gradients are now as the optimizer uses them."""


class Hook:
    """What an optimizer calls before a step. A closure, which computes the gradients, is followed. Keeps nobody alive."""

    def __init__(self, engine: Measures) -> None:
        self._engine = weakref.ref(engine)

    def __call__(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """See `Optimizer.register_step_pre_hook`; `args` begin with the optimizer itself."""
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self._measure()
            return None
        return args[:1], {**kwargs, "closure": self._followed(closure)}

    def _followed(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def then_measure() -> Any:
            result = closure()
            self._measure()
            return result

        return then_measure

    @torch._disable_dynamo
    def _measure(self) -> None:
        engine = self._engine()
        if engine is not None:
            engine.measure_again()


def usable(new: Tensor, old: Tensor) -> Tensor:
    """The new ratio, or the old one if there is no new one: no gradient, or one that is not finite."""
    return torch.where(torch.isfinite(new) & (new > 0), new, old)


def _is_sharded(parameter: Tensor) -> bool:
    """FSDP2's parameters are DTensors. FSDP's are views of this process's part, which torch marks."""
    return isinstance(parameter, DTensor) or bool(getattr(parameter, "_fsdp_flattened", False))


def _length(tensors: list[Tensor]) -> Tensor:
    wide = [t if t.dtype == torch.float64 else t.float() for t in tensors]
    return torch.stack(torch._foreach_norm(wide)).norm()  # type: ignore[arg-type]


def _direction(optimizer: Optimizer, group: dict[str, Any], weight: Tensor) -> Tensor:
    """What the next step subtracts from a weight at an LR of 1. Changes nothing."""
    gradient, decay, scale = weight.grad, group["weight_decay"], getattr(optimizer, "grad_scale", None)
    assert gradient is not None
    if scale is not None:  # of a GradScaler, which leaves the division to a fused optimizer
        gradient = gradient / scale.to(gradient.device)
    gradient = -gradient if group["maximize"] else gradient
    decoupled = group.get("decoupled_weight_decay", isinstance(optimizer, AdamW))
    if decay and not decoupled:
        gradient = gradient.add(weight, alpha=decay)
    state = optimizer.state.get(weight, {})
    if isinstance(optimizer, SGD):
        return _heavy_ball(group, gradient, state)
    moved = _adam(group, gradient, state)
    return moved.add(weight, alpha=decay) if decay and decoupled else moved


def _heavy_ball(group: dict[str, Any], gradient: Tensor, state: dict[str, Any]) -> Tensor:
    momentum, buffer = group["momentum"], state.get("momentum_buffer")
    if not momentum:
        return gradient
    buffer = gradient if buffer is None else (momentum * buffer).add(gradient, alpha=1 - group["dampening"])
    return gradient.add(buffer, alpha=momentum) if group["nesterov"] else buffer


def _adam(group: dict[str, Any], gradient: Tensor, state: dict[str, Any]) -> Tensor:
    beta1, beta2 = group["betas"]
    zero = torch.zeros_like(gradient)
    m = torch.lerp(state.get("exp_avg", zero), gradient, 1 - beta1)
    v = (beta2 * state.get("exp_avg_sq", zero)).addcmul(gradient, gradient, value=1 - beta2)
    if group["amsgrad"]:
        v = torch.maximum(v, state.get("max_exp_avg_sq", zero))
    count = torch.as_tensor(state.get("step", 0))
    # Torch takes the powers in float64 on the host, where float32 would keep 4 digits of 1 - 0.999, and in float32 on a device.
    step = (float(count) if count.device.type == "cpu" else count) + 1
    return m / (1 - beta1**step) / ((v / (1 - beta2**step)).sqrt() + group["eps"])
