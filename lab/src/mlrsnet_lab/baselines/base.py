"""What the baselines share: argument checks, sums over all parameters, and skipped steps.

They compute on lists of tensors, one per parameter. Torch's `_foreach_` functions run such a list in a few
kernels if device, type and layout are the same, otherwise in one kernel per tensor. They do not accept empty lists.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from mlrsnet_lab import checks

Rule = Callable[[str, Any], Any]
"""Takes an argument's name and value. Returns the value to store, or raises an error that names both and the rule."""
Tensors = list[Tensor] | tuple[Tensor, ...]
"""One tensor per parameter."""
States = Sequence[dict[str, Any]]
"""The optimizer's state of each of these parameters."""


class Baseline(Optimizer):
    """An optimizer that finds its own LR, one for all parameters. Everything it remembers is in `state` and in its one group.

    `rules` has its arguments and how to check them; `found` what it has found before the first step, in the group too.
    """

    rules: ClassVar[Mapping[str, Rule]]
    found: ClassVar[Mapping[str, Any]] = {"hypergradient": None}
    _has_warned = False  # on the class, because a copy or a pickle of an optimizer keeps no other attributes

    def __init__(self, params: Any, **settings: Any) -> None:
        super().__init__(params, {**settings, **self.found})

    @property
    def group(self) -> dict[str, Any]:
        """The one group."""
        return self.param_groups[0]

    @property
    def last_hypergradient(self) -> float | None:
        """The slope of a loss over the LR, as of the last step: positive if a smaller LR had been better. None before there is one.

        HD: of the training loss, -g_{t+1} . d_t. RTHO: of the validation loss, grad E(w_t) . Z_t. L4 has none.
        """
        return self.group.get("hypergradient")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Take the parameters, and check the settings."""
        if self.param_groups:
            name = type(self).__name__
            raise ValueError(
                f"{name} must have one parameter group, because it finds one LR, got another: pass all at once"
            )
        super().add_param_group(param_group)
        for name, rule in self.rules.items():
            self.group[name] = rule(name, self.group[name])
        for parameter in self.group["params"]:
            if not parameter.is_floating_point():
                raise TypeError(f"parameters must be real floating-point tensors, got {parameter.dtype}")

    def _skip(self, what: str) -> None:
        """Warn, once, that a step was skipped."""
        if not self._has_warned:
            self._has_warned = True
            checks.warn(
                f"{what} was not finite: the optimizer skipped this step and changed nothing; it warns only once"
            )


def lr(name: str, value: Any) -> float:
    """Check: a finite float >= 0, not a tensor."""
    return checks.not_negative(name, _no_tensor(name, value))


def lr_of(group: Mapping[str, Any]) -> float:
    """The current LR of a group."""
    return float(_no_tensor("lr", group["lr"]))


def flag(name: str, value: Any) -> bool:
    """Check: True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return value


def betas(name: str, value: Any) -> tuple[float, float]:
    """Check: two numbers in [0, 1)."""
    if isinstance(value, str) or not isinstance(value, Iterable) or len(found := list(value)) != 2:
        raise ValueError(f"{name} must be two numbers such as (0.9, 0.999), got {value!r}")
    first, second = (checks.below_one(f"each of {name}", beta) for beta in found)
    return first, second


def check_dense(gradients: Iterable[Tensor]) -> None:
    """Raise a TypeError if any gradient is sparse."""
    if any(g.is_sparse for g in gradients):
        raise TypeError("gradients must be dense, got a sparse one: pass sparse=False to its layer")


def with_decay(parameters: Tensors, gradients: Tensors, weight_decay: float) -> Tensors:
    """g + weight_decay w."""
    check_dense(gradients)
    return torch._foreach_add(gradients, parameters, alpha=weight_decay) if weight_decay and gradients else gradients


def with_gradients(group: Mapping[str, Any]) -> tuple[list[Tensor], Tensors]:
    """The group's parameters that have gradients, and their gradients with weight decay."""
    parameters = [p for p in group["params"] if p.grad is not None]
    return parameters, with_decay(parameters, [p.grad for p in parameters], group["weight_decay"])


def recall(states: States, name: str, like: Tensors) -> list[Tensor]:
    """The values of this name in the states; zeros where there is none yet."""
    return [state[name] if name in state else torch.zeros_like(x) for state, x in zip(states, like, strict=True)]


def remember(states: States, name: str, values: Tensors) -> Tensors:
    """Store the values under this name in the states, and return them."""
    for state, value in zip(states, values, strict=True):
        state[name] = value
    return values


def first_moment(states: States, gradients: Tensors, beta: float) -> Tensors:
    """Advance t <- t + 1 and the average of the gradients by one step; return its corrected value.

        m <- beta m + (1 - beta) g,        m / (1 - beta^t)

    Each parameter has its own t: the number of steps in which it had a gradient.
    """
    for state in states:
        state["steps"] = state.get("steps", 0) + 1
    return _average(states, "mean", gradients, beta)


def adam(states: States, gradients: Tensors, betas: tuple[float, float], eps: float) -> tuple[Tensors, Tensors]:
    """Advance the averages m of g and s of g^2 by one step. Returns m and Adam's direction m / (sqrt(s) + eps), corrected."""
    m = first_moment(states, gradients, betas[0])
    root = _average(states, "square", torch._foreach_mul(gradients, gradients), betas[1])
    torch._foreach_sqrt_(root)
    torch._foreach_add_(root, eps)
    return m, torch._foreach_div(m, root)


def _average(states: States, name: str, values: Tensors, beta: float) -> Tensors:
    """a_t / (1 - beta^t), where  a_t = beta a_{t-1} + (1 - beta) x_t,  a_0 = 0.  a_t is stored under `name`; t is "steps"."""
    a = remember(states, name, recall(states, name, values))
    torch._foreach_lerp_(a, values, 1 - beta)
    return torch._foreach_div(a, [1 - beta ** state["steps"] for state in states])


def dot(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """The sum of the inner products; 0 if there are none. Waits for the device.

    All products are in memory at once, so that few kernels are launched. `torch.dot` would need no such memory, but on
    CPUs it loses digits in long float32 sums.
    """
    wide = [(_wide(a), _wide(b)) for a, b in pairs]
    if not wide:
        return 0.0
    parts = [product.sum() for product in torch._foreach_mul(*zip(*wide, strict=True))]
    return float(torch.stack([part.to(parts[0].device) for part in parts]).sum(dtype=torch.float64))


def _wide(tensor: Tensor) -> Tensor:
    """At least float32, because long sums of half-precision products lose digits."""
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def number(name: str, loss: Any) -> float:
    """A loss as a float, finite or not. Raises an error if it is not one number. Waits for the device."""
    check_number(name, loss)
    return float(loss.detach() if isinstance(loss, Tensor) else loss)


def check_number(name: str, loss: Any) -> None:
    """Raise a ValueError or TypeError if the loss is not one number. Does not wait for the device."""
    if isinstance(loss, Tensor) and loss.numel() != 1:
        raise ValueError(
            f"{name} must be one number, got a tensor of shape {tuple(loss.shape)}: pass the mean of a batch"
        )
    if isinstance(loss, bool | str) or not hasattr(loss, "__float__"):
        raise TypeError(f"{name} must be a tensor or a number, got {loss!r}")


def _no_tensor(name: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        raise ValueError(f"{name} must be a float, got a tensor: this optimizer sets it on the host in every step")
    return value
