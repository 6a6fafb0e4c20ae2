"""Everything that is known of kinds of optimizers: what their LR means, which of them no schedule can serve, whose hooks fire.

Kinds are recognised by the keys of their parameter groups, which wrappers and subclasses share, or else by the names of their
classes: their packages need not be installed.
"""

import inspect
import math
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from torch import Tensor
from torch.optim import SGD, Optimizer

from mlrsnet import _shards

ADAPTIVE_KEYS = ("betas", "beta2_decay", "centered", "initial_accumulator_value", "clip_threshold")
"""Of parameter groups of Adam-like optimizers, torch's Adafactor, RMSprop, Adagrad, and other Adafactors."""

ORTHOGONAL_KEY = "ns_steps"
"""Of parameter groups of Muon: Newton-Schulz."""

UNDIVIDED = ("aggmo", "adai", "adais")
"""Optimizers with betas that do not divide by the size of the gradient."""

COUNT = (int, float, Tensor)
"""What an optimizer may count its steps with."""

FLAT = (
    "optimizer must have weights of their own shapes, got flat ones, as those of FSDP1 and DeepSpeed's ZeRO, in which matrices "
    "cannot be told apart: use FSDP2 (torch.distributed.fsdp.fully_shard)"
)


class Unsuitable(NamedTuple):
    """A kind of optimizer that no schedule can serve: how to recognise it, and why.

    why: goes on after "got ..., which". keys: all of them are in its parameter groups. names: how names of its classes begin, in
    lower case.
    """

    why: str
    keys: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()

    def fits(self, keys: Iterable[str], names: Iterable[str]) -> bool:
        """Whether an optimizer with these keys and names of classes is one."""
        by_keys = bool(self.keys) and self.keys <= set(keys)
        return by_keys or any(name.startswith(self.names) for name in names if self.names)


KINDS = (
    Unsuitable(
        "estimates its own LR and multiplies it by the schedule's",
        frozenset(("d", "growth_rate")),
        ("prodigy", "dadapt", "mechani"),
    ),
    Unsuitable("estimates its own LR and multiplies it by the schedule's", frozenset(("reps_rel",)), ("dog", "ldog")),
    Unsuitable(
        "averages the weights in place of a schedule",
        frozenset(("weight_sum", "weight_lr_power")),
        ("schedulefree",),
    ),
    Unsuitable("sets its LR itself", frozenset(("hyper_lr", "hypergradient"))),  # ours: HD and RTHO
    Unsuitable("sets its LR itself", frozenset(("min_loss", "forget_steps")), ("l4",)),
    Unsuitable("sets its LR itself", frozenset(("amplifier", "theta"))),  # pytorch-optimizer's ASGD
    Unsuitable("keeps an LR of its own and lets it fall", frozenset(("lambd", "t0")), ("asgd",)),
    Unsuitable("steps inside of the backward pass, by other optimizers", names=("layerwisedummy",)),  # Transformers'
    Unsuitable("uses the LR in its first step only", frozenset(("etas", "step_sizes")), ("rprop",)),
    Unsuitable("computes weights from all gradients so far, and no steps", frozenset(("lr_power", "lambda_1"))),
    Unsuitable(
        "evaluates the loss several times in a step and reads its LR before",
        frozenset(("max_iter", "history_size")),
        ("lbfgs",),
    ),
)


def check(optimizer: Any) -> None:
    """Refuse what is no optimizer, or one whose LR no schedule can set; a wrapper by its own name, before it is unwrapped."""
    name = type(optimizer).__name__
    names = [kind.__name__.lower() for kind in type(optimizer).__mro__]
    found = next((kind for kind in KINDS if any(kind.fits((), [one]) for one in names)), None)
    if found is None and not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {name}: pass the optimizer of the training")
    for one in _inner(optimizer) if found is None else ():
        check(one)
    if any(_shards.is_flattened(weight) for group in optimizer.param_groups for weight in group["params"]):
        raise ValueError(FLAT)
    for place, group in enumerate(optimizer.param_groups):
        found = found or next((kind for kind in KINDS if kind.fits(group, ())), None)
        if found is not None:
            raise ValueError(
                f"optimizer must leave its LR to the schedule, got {name}, which {found.why}: use another optimizer, such as "
                "AdamW, or train with it alone, without LearnedLR"
            )
        if group.get("relative_step"):
            raise ValueError(
                f"optimizer must leave its LR to the schedule, got {name} with relative_step=True, which sets its LR itself: pass "
                "any lr, such as 1e-3, and relative_step=False where it takes that; the size of the lr does not matter"
            )
        if group.get("lr") is None:
            raise ValueError(
                f"optimizer must have an LR in each of its parameter groups, got {'None' if 'lr' in group else 'none'} in group "
                f"{place} of {name}: pass an lr, or use another optimizer, such as AdamW"
            )


def has_matrices(optimizer: Optimizer) -> bool:
    """Whether any parameter has more than one dimension, trained or not."""
    return any(weight.ndim > 1 for group in optimizer.param_groups for weight in group["params"])


def with_hooks(optimizer: Optimizer) -> list[Optimizer]:
    """The optimizers whose `step` may be the one that moves the weights: this one, and all that share its parameter groups.

    SAM's two halves of a step call the inner optimizer alone, and Accelerate's wrapper has no hooks of its own.
    """
    found = [one for one in (optimizer, *_inner(optimizer)) if hasattr(one, "_optimizer_step_pre_hooks")]
    if not found:
        raise ValueError(
            f"optimizer must have torch's step hooks, got {type(optimizer).__name__}, which does not call Optimizer.__init__: call "
            "it there"
        )
    return found


def owner(optimizer: Optimizer) -> Optimizer:
    """The innermost optimizer with the same parameter groups. A wrapper may refuse what its inner one can do."""
    return (optimizer, *_inner(optimizer))[-1]


def _inner(optimizer: Any) -> list[Optimizer]:
    """Optimizers inside this one that share its list of groups, the outer before the inner."""
    found: list[Optimizer] = []
    for value in vars(optimizer).values():
        if isinstance(value, Optimizer) and value.param_groups is optimizer.param_groups and value is not optimizer:
            found += [value, *_inner(value)]
    return found


@cache
def closure_place(kind: Any) -> int | None:
    """Where `step` takes a `closure` by position, counted with self; None if it has no such argument."""
    names = list(inspect.signature(kind.step).parameters)
    return names.index("closure") if "closure" in names else None


def settings(optimizer: Optimizer, group: dict[str, Any]) -> dict[str, Any]:
    """A parameter group with the keys of torch's optimizer of the same kind.

    bitsandbytes has one class for all, and keeps RMSprop's average where Adam has beta_1. Some kinds of momentum have betas, too.
    """
    if type(optimizer).__name__.lower() in UNDIVIDED:
        return {name: value for name, value in group.items() if name != "betas"} | {"beta1": group.get("betas")}
    if getattr(optimizer, "optimizer_name", None) != "rmsprop" or "betas" not in group:
        return group
    alpha, momentum, *_ = group["betas"]
    return {"lr": group["lr"], "alpha": alpha, "momentum": momentum, "centered": False}


def is_plain_sgd(optimizer: Optimizer) -> bool:
    """Whether the next step is the gradient, but for weight decay: torch's SGD without momentum."""
    return type(optimizer) is SGD and not any(group["momentum"] for group in optimizer.param_groups)


def has_stepped(optimizer: Optimizer) -> bool:
    """Whether an optimizer, or one inside it, has trained before: it counts more than one step, or has a momentum. One step may
    only have made its state, as torch's distributed checkpoints do at an LR of 0.
    """
    return any(_counts_steps(one) or _has_momentum(one) for one in (optimizer, *_inner(optimizer)))


def _counts_steps(optimizer: Optimizer) -> bool:
    """Whether it counts more than one step, for each weight or for a whole group, as others than torch's do."""
    held = (one for one in (*optimizer.state.values(), *optimizer.param_groups) if isinstance(one, dict))
    counts = [one.get("step") for one in held]
    numbers = (
        bool((one > 1).any()) if isinstance(one, Tensor) else one > 1 for one in counts if isinstance(one, COUNT)
    )
    return any(numbers)


def _has_momentum(optimizer: Optimizer) -> bool:
    """Whether a momentum is not 0."""
    buffers = (one.get("momentum_buffer") for one in optimizer.state.values() if isinstance(one, dict))
    return any(isinstance(buffer, Tensor) and bool(buffer.any()) for buffer in buffers)


def is_adaptive(group: dict[str, Any]) -> bool:
    """Whether the optimizer of a parameter group divides by the size of the gradient: Adam and its relatives, and Muon.

    >>> is_adaptive({"betas": (0.9, 0.999)}), is_adaptive({"momentum": 0.9, "dampening": 0.0})
    (True, False)
    """
    return any(key in group for key in (ORTHOGONAL_KEY, *ADAPTIVE_KEYS))


def is_known(group: dict[str, Any]) -> bool:
    """Whether the kind of optimizer of a parameter group is Adam-like, Muon, or SGD, by its keys.

    LARS has SGD's keys, but its steps are relative to the weights.

    >>> is_known({"betas": (0.9, 0.999)}), is_known({"momentum": 0.9, "dampening": 0.0})
    (True, True)
    >>> is_known({"lr": 0.1}), is_known({"momentum": 0.9, "dampening": 0.0, "trust_coeff": 0.001})
    (False, False)
    """
    is_sgd = {"momentum", "dampening"} <= group.keys() and not any(str(key).startswith("trust") for key in group)
    return is_adaptive(group) or is_sgd


def noise_scale(group: dict[str, Any]) -> Any:
    """c(m) = sqrt((1 - m) / (1 + m)), with m the momentum or beta_1 of a parameter group; 1 without one.

    Steps of one length carry further if they point the same way. Where gradients are mostly noise, steps with momentum m add up
    to 1 / c(m) times the distance of steps without, so with c(m) all of them want the same relative step.

    m is the group's `momentum`, its `beta1`, or the first of its `betas`, which may be nested. A tensor gives a tensor.

    >>> round(noise_scale({"momentum": 0.9}), 4), round(noise_scale({"betas": (0.8, 0.999)}), 4)
    (0.2294, 0.3333)
    >>> noise_scale({"lr": 0.1}), noise_scale({"beta1": None})
    (1.0, 1.0)
    """
    m = group.get("momentum") or group.get("beta1") or group.get("betas") or 0.0
    if not isinstance(m, float):
        m = _first(m)
    if isinstance(m, Tensor):
        return ((1 - m) / (1 + m)).sqrt()
    if not 0 <= m < 1:
        raise ValueError(
            f"momentum or beta_1 must be in [0, 1) for the default schedule, got {m!r}: the LR scales with sqrt((1 - m) / (1 + m))"
        )
    return math.sqrt((1 - m) / (1 + m))


def first_move(group: dict[str, Any]) -> float:
    """How far an optimizer that divides by the size of the gradient moves a weight in its first step at an LR of 1: by at most 1.

    RMSprop's average of squares begins at 0 and is not corrected for it, so its first step is 1 / sqrt(1 - alpha) times that.

    >>> first_move({"betas": (0.9, 0.999)}), round(first_move({"alpha": 0.99, "centered": False}), 6)
    (1.0, 10.0)
    """
    return 1 / math.sqrt(1 - group["alpha"]) if "centered" in group and group.get("alpha", 1) < 1 else 1.0


def _first(value: Any) -> Any:
    """A number, or the first one in nested sequences; 0 for none. A tensor stays one unless it is on the CPU."""
    while isinstance(value, list | tuple):
        value = value[0] if value else None
    if isinstance(value, Tensor) and value.device.type != "cpu":
        return value
    return float(value or 0.0)
