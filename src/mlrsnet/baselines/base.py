"""What the baselines share: checked arguments, sums over all groups, steps that are left out.

They compute on lists of tensors, one for each parameter of a group: torch's `_foreach_` functions make a few kernels of such
a list where they can (one device, dtype and layout) and one for each tensor elsewhere. They refuse empty lists.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from mlrsnet import _check
from mlrsnet._engine.groups import initial_ratios, remember_initial_lrs

Rule = Callable[[str, Any], Any]
"""Takes an argument's name and value; returns the value as it is kept, or raises naming both and what is allowed."""
Tensors = list[Tensor] | tuple[Tensor, ...]
"""One for each parameter of a group."""
States = Sequence[dict[str, Any]]
"""What an optimizer remembers of each of these parameters."""


class Baseline(Optimizer):
    """An optimizer that finds its LR itself. All that it remembers is in `state` and `param_groups`.

    `rules` are its arguments, each of which a group may have a value of its own for, but for those in `shared`, of which
    there is one.
    """

    rules: ClassVar[Mapping[str, Rule]]
    shared: ClassVar[tuple[str, ...]] = ()
    _has_warned = False  # on the class, as a copy or a pickle of an optimizer keeps no attributes of its own

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Further parameters; what the group does not say is as in the others."""
        if isinstance(param_group, dict):
            common = self.param_groups[0] if self.param_groups else self.defaults
            given = {**self.defaults, **{name: common[name] for name in self.shared}, **param_group}
            checked = {name: rule(name, given[name]) for name, rule in self.rules.items()}
            for name in self.shared:
                if name in self.rules and checked[name] != common[name]:
                    raise ValueError(
                        f"{name} must be the same in all parameter groups, got {checked[name]!r} beside {common[name]!r}: "
                        "give it to the optimizer, not to a group"
                    )
            param_group = given | checked
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            if not parameter.is_floating_point():
                del self.param_groups[-1]
                raise TypeError(f"parameters must be real floating-point tensors, got {parameter.dtype}")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there; refuses what another kind of optimizer has left."""
        if not {"state", "param_groups"} <= state_dict.keys():
            raise ValueError(
                f"state_dict must be that of a {type(self).__name__}, got keys {sorted(state_dict)}: pass optimizer.state_dict()"
            )
        for group in state_dict["param_groups"]:
            absent = [name for name in self.rules if name not in group]
            if absent:
                raise ValueError(
                    f"state_dict must be that of a {type(self).__name__}, got one whose groups have no {absent[0]!r}"
                )
        super().load_state_dict(state_dict)

    def _ratios(self) -> tuple[dict[str, Any], list[float]]:
        """The group whose LR is alpha, and all groups' LRs relative to it: the ratios that they began with."""
        reference = remember_initial_lrs(self)
        return self.param_groups[reference], initial_ratios(self, reference)

    def _leave_out(self, what: str) -> None:
        """Say once that a step was not taken."""
        if not self._has_warned:
            self._has_warned = True
            _check.warn(
                f"{what} was not finite: the optimizer has left out this step and changed nothing; further ones go unmentioned"
            )


def lr(name: str, value: Any) -> float:
    """A finite float >= 0, and no tensor."""
    return _check.not_negative(name, _no_tensor(name, value))


def lr_of(group: Mapping[str, Any]) -> float:
    """The LR that a group has now."""
    return float(_no_tensor("lr", group["lr"]))


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return value


def betas(name: str, value: Any) -> tuple[float, float]:
    """Two numbers in [0, 1)."""
    if isinstance(value, str) or not isinstance(value, Iterable) or len(found := list(value)) != 2:
        raise ValueError(f"{name} must be two numbers such as (0.9, 0.999), got {value!r}")
    first, second = (_check.below_one(f"each of {name}", beta) for beta in found)
    return first, second


def check_dense(gradients: Iterable[Tensor]) -> None:
    """TypeError for a sparse one."""
    if any(g.is_sparse for g in gradients):
        raise TypeError("gradients must be dense, got a sparse one: pass sparse=False to its layer")


def with_decay(parameters: Tensors, gradients: Tensors, weight_decay: float) -> Tensors:
    """g + wd w."""
    check_dense(gradients)
    return torch._foreach_add(gradients, parameters, alpha=weight_decay) if weight_decay and gradients else gradients


def with_gradients(group: Mapping[str, Any]) -> tuple[list[Tensor], Tensors]:
    """The group's parameters that have gradients, and these, with weight decay."""
    parameters = [p for p in group["params"] if p.grad is not None]
    return parameters, with_decay(parameters, [p.grad for p in parameters], group["weight_decay"])


def recall(states: States, name: str, like: Tensors) -> list[Tensor]:
    """What the states hold under this name; 0 where that is nothing yet."""
    return [state[name] if name in state else torch.zeros_like(x) for state, x in zip(states, like, strict=True)]


def remember(states: States, name: str, values: Tensors) -> Tensors:
    """The values, each of which its state holds under this name from now on."""
    for state, value in zip(states, values, strict=True):
        state[name] = value
    return values


def first_moment(states: States, gradients: Tensors, beta: float) -> Tensors:
    """m, the average of the gradients, one step further.

    t <- t + 1: each parameter has its own, the number of steps in which it had a gradient.
    """
    for state in states:
        state["steps"] = state.get("steps", 0) + 1
    return _average(states, "mean", gradients, beta)


def adam(states: States, gradients: Tensors, betas: tuple[float, float], eps: float) -> tuple[Tensors, Tensors]:
    """m and Adam's direction  m / (sqrt(s) + eps), one step further; s is the average of g^2."""
    m = first_moment(states, gradients, betas[0])
    root = _average(states, "square", torch._foreach_mul(gradients, gradients), betas[1])
    torch._foreach_sqrt_(root)
    torch._foreach_add_(root, eps)
    return m, torch._foreach_div(m, root)


def _average(states: States, name: str, values: Tensors, beta: float) -> Tensors:
    """a_t / (1 - beta^t), where  a_t = beta a_{t-1} + (1 - beta) x_t,  a_0 = 0  is remembered by its name; t is "steps"."""
    a = remember(states, name, recall(states, name, values))
    torch._foreach_lerp_(a, values, 1 - beta)
    return torch._foreach_div(a, [1 - beta ** state["steps"] for state in states])


def dot(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """The sum of the inner products, 0 for none; waits for the device.

    Holds all products at once, to launch once for all; `torch.dot` holds none, but loses digits of long float32 sums on CPUs.
    """
    wide = [(_wide(a), _wide(b)) for a, b in pairs]
    if not wide:
        return 0.0
    parts = [product.sum() for product in torch._foreach_mul(*zip(*wide, strict=True))]
    return float(torch.stack([part.to(parts[0].device) for part in parts]).sum(dtype=torch.float64))


def _wide(tensor: Tensor) -> Tensor:
    """float32 or wider: long sums of half-precision products lose their digits."""
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def number(name: str, loss: Any) -> float:
    """A loss as a float, which may be not finite; one clear error where it is not one number. Waits for the device."""
    check_number(name, loss)
    return float(loss.detach() if isinstance(loss, Tensor) else loss)


def check_number(name: str, loss: Any) -> None:
    """ValueError or TypeError for what is not one number; waits for nothing."""
    if isinstance(loss, Tensor) and loss.numel() != 1:
        raise ValueError(
            f"{name} must be one number, got a tensor of shape {tuple(loss.shape)}: pass the mean of a batch"
        )
    if isinstance(loss, bool | str) or not hasattr(loss, "__float__"):
        raise TypeError(f"{name} must be a tensor or a number, got {loss!r}")


def _no_tensor(name: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        raise ValueError(f"{name} must be a float, got a tensor: this method sets it on the host in every step")
    return value
