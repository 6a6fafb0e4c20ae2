"""What a training may run under, by name: each makes an optimizer and says what happens around its steps.

A new row is one entry of `METHODS`: a function of the network, the task's plan and, for decays only, a multiple of its usual LR.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

import mlrsnet
from lab.studies.judge.task import Plan
from mlrsnet.baselines import factors
from mlrsnet.default import Default
from mlrsnet.law import Law
from mlrsnet_lab import optimizers

WARMUP = 0.05
START, TIMES = (0.3, 1.0, 3.0), (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Multiples of the usual LR that are tried first, and all that may be."""

ONE_SIZE = Default(0.087, 0.0, 0.0, 0.0, fall=0.0, rise=0.0)
FIRST_STEP = 1e-4
"""Of L-DoG with batch norm, as its authors advise."""


def nothing(*_: Any) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Driver:
    """before: told each loss, before the optimizer's step. after: called after it."""

    optimizer: Optimizer
    before: Callable[[Tensor], object] = nothing
    after: Callable[[], object] = nothing


Method = Callable[[nn.Module, Plan, float | None], Driver]


def weights(model: nn.Module) -> list[nn.Parameter]:
    """What is trained."""
    return [weight for weight in model.parameters() if weight.requires_grad]


def built(
    model: nn.Module, plan: Plan, name: str, lr: float, decay: str | None = None, warmup: float = 0.0, **options: Any
) -> Driver:
    """An optimizer of the lab, with a decay by name if asked, after a warm-up over a share of the training."""
    made = optimizers.build(name, weights(model), lr, plan.weight_decay, torch.device("cpu"), **options)
    if decay is None:
        return Driver(made)
    course = [*factors(decay, plan.steps, plan.steps, warmup=warmup), 0.0]
    return Driver(made, after=LambdaLR(made, course.__getitem__).step)


def decayed(kind: str) -> Method:
    """The task's optimizer, at a multiple of its usual LR."""

    def make(model: nn.Module, plan: Plan, multiple: float | None) -> Driver:
        return built(model, plan, plan.optimizer, (multiple or 1.0) * plan.lr, kind, WARMUP)

    return make


def options_of(model: nn.Module, plan: Plan) -> dict[str, Any]:
    """What every `LearnedLR` of this study is told beside the number of steps."""
    return {}


def learned(law: str | Law = "universal", told: bool = True, **options: Any) -> Method:
    """`LearnedLR` on the task's optimizer, told every loss or none."""

    def make(model: nn.Module, plan: Plan, _: float | None) -> Driver:
        driver = built(model, plan, plan.optimizer, plan.lr)
        lr = mlrsnet.LearnedLR(driver.optimizer, law, total_steps=plan.steps, **options_of(model, plan), **options)
        return Driver(driver.optimizer, before=lr.step if told else nothing)

    return make


def schedule_free(model: nn.Module, plan: Plan, _: float | None) -> Driver:
    """As its authors advise: 2.5 or 10 times the usual LR."""
    name, times = ("schedule-free-adamw", 2.5) if plan.is_adaptive else ("schedule-free-sgd", 10.0)
    return built(model, plan, name, times * plan.lr, warmup_steps=round(WARMUP * plan.steps))


def prodigy(model: nn.Module, plan: Plan, _: float | None) -> Driver:
    """With a cosine."""
    return built(model, plan, "prodigy", 1.0, "cosine")


def l_dog(model: nn.Module, plan: Plan, _: float | None) -> Driver:
    """With its average."""
    has_norms = any(isinstance(module, _BatchNorm) for module in model.modules())
    options: dict[str, Any] = {"reps_rel": FIRST_STEP} if has_norms else {}
    return built(model, plan, "l-dog", 1.0, **options)


def d_adapted(model: nn.Module, plan: Plan, _: float | None) -> Driver:
    """D-Adaptation's form of the task's optimizer, with a cosine."""
    if plan.is_adaptive:
        return built(model, plan, "d-adapt-adam", 1.0, "cosine", decouple=plan.optimizer == "adamw")
    return built(model, plan, "d-adapt-sgd", 1.0, "cosine", momentum=0.9)


DECAYS: dict[str, Method] = {kind: decayed(kind) for kind in ("linear", "cosine")}
"""Their LRs are tuned on validation data."""

METHODS: dict[str, Method] = {
    **DECAYS,
    "one relative size": learned(ONE_SIZE, trained=False),
    "Schedule-Free": schedule_free,
    "Prodigy": prodigy,
    "L-DoG": l_dog,
    "D-Adaptation": d_adapted,
    "default": learned(),
    "default without losses": learned(told=False),
    **{f"default x {scale:g}": learned(scale=scale) for scale in (0.5, 2.0)},
}
"""In the order in which they are run."""
