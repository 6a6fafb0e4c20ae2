"""Which optimizers a schedule can serve. Those that set their own LR, or do not use it, are refused with what to do instead.

They are recognised by the keys of their parameter groups, which wrappers and subclasses share, or else by the names of their
classes: their packages need not be installed.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch.optim import Optimizer


class Unsuitable(NamedTuple):
    """A kind of optimizer that no schedule can serve: how to recognise it, and why.

    keys: all of them are in its parameter groups. names: how names of its classes begin, in lower case. why: goes on after
    "got ..., which". instead: what to do, after "use another optimizer, ".
    """

    why: str
    instead: str
    keys: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()

    def fits(self, keys: Iterable[str], names: Iterable[str]) -> bool:
        """Whether an optimizer with these keys and names of classes is one."""
        by_keys = bool(self.keys) and self.keys <= set(keys)
        return by_keys or any(name.startswith(self.names) for name in names if self.names)


ALONE = "or train with it alone, without LearnedLR"
KINDS = (
    Unsuitable(
        "estimates its own LR and multiplies it by the schedule's",
        ALONE,
        frozenset(("d", "growth_rate")),
        ("prodigy", "dadapt"),
    ),
    Unsuitable(
        "estimates its own LR and multiplies it by the schedule's", ALONE, frozenset(("reps_rel",)), ("dog", "ldog")
    ),
    Unsuitable(
        "averages the weights in place of a schedule",
        ALONE,
        frozenset(("weight_sum", "weight_lr_power")),
        ("schedulefree",),
    ),
    Unsuitable("sets its LR itself", ALONE, frozenset(("hyper_lr", "hypergradient"))),  # ours: HD and RTHO
    Unsuitable("sets its LR itself", ALONE, frozenset(("min_loss", "forget_steps")), ("l4",)),
    Unsuitable("sets its LR itself", ALONE, frozenset(("amplifier", "theta"))),  # pytorch-optimizer's ASGD
    Unsuitable("uses the LR in its first step only", ALONE, frozenset(("etas", "step_sizes")), ("rprop",)),
    Unsuitable("computes weights from all gradients so far, and no steps", ALONE, frozenset(("lr_power", "lambda_1"))),
    Unsuitable(
        "evaluates the loss several times in a step and reads its LR before",
        ALONE,
        frozenset(("max_iter", "history_size")),
        ("lbfgs",),
    ),
)


def check(optimizer: Optimizer) -> None:
    """Refuse an optimizer whose LR no schedule can set."""
    name = type(optimizer).__name__
    names = [kind.__name__.lower() for kind in type(optimizer).__mro__]
    for place, group in enumerate(optimizer.param_groups):
        found = next((kind for kind in KINDS if kind.fits(group, names)), None)
        if found is not None:
            raise ValueError(
                f"optimizer must leave its LR to the schedule, got {name}, which {found.why}: use another optimizer, such as "
                f"AdamW, {found.instead}"
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


def check_lrs(optimizer: Optimizer) -> None:
    """Refuse an optimizer that would train nothing. `groups.remember_initial_lrs` comes first."""
    if not any(group["initial_lr"] for group in optimizer.param_groups):
        raise ValueError(
            "optimizer must have a parameter group whose LR is not 0, got only LRs of 0, which mean that nothing is trained: "
            "pass any other lr, such as 1e-3; only the ratios between groups count"
        )


def as_torch(optimizer: Optimizer, group: dict[str, Any]) -> dict[str, Any]:
    """A parameter group with the keys of torch's optimizer of the same kind.

    bitsandbytes has one class for all, and keeps RMSprop's average where Adam has beta_1.
    """
    if getattr(optimizer, "optimizer_name", None) != "rmsprop" or "betas" not in group:
        return group
    alpha, momentum, *_ = group["betas"]
    return {"lr": group["lr"], "alpha": alpha, "momentum": momentum, "centered": False}
