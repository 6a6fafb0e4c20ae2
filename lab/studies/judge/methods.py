"""What a training may run under, by name: each makes an optimizer and says what happens around its steps.

A new row is one entry of `METHODS`: a function of the network, the task's plan and, for decays only, a multiple of its usual LR.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

import mlrsnet
from lab.studies.judge.task import Plan
from mlrsnet.baselines import factors
from mlrsnet.default import Default, Size
from mlrsnet.law import Law
from mlrsnet_lab import optimizers
from mlrsnet_lab.recipes.proof import CALIBRATED, CLIP_NORM, KINDS

WARMUP = 0.05
START, TIMES = (0.3, 1.0, 3.0), (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Multiples of the usual LR that are tried first, and all that may be."""

LAW_BEFORE = Default(replace(Size.fixed(0.13), steps=-0.1, parameters=-0.19, depth=-1.2), caution=0.1)
"""But for what it did of norms: it counted no depth there, as 0 does."""

ONE_SIZE = Default(Size.fixed(0.087), fall=0.0, rise=0.0)
FIRST_STEP = 1e-4
"""Of L-DoG with batch norm, as its authors advise."""


def nothing(*_: Any) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Driver:
    """before: told each loss, before the optimizer's step. after: called after it. clip: of gradients, where the task has none."""

    optimizer: Optimizer
    before: Callable[[Tensor], object] = nothing
    after: Callable[[], object] = nothing
    clip: float | None = None


Method = Callable[[nn.Module, Plan, float | None], Driver]


def weights(model: nn.Module) -> list[nn.Parameter]:
    """What is trained."""
    return [weight for weight in model.parameters() if weight.requires_grad]


def built(
    model: nn.Module,
    plan: Plan,
    name: str,
    lr: float,
    course: str | None = None,
    warmup: float = 0.0,
    decays: bool = True,
    **options: Any,
) -> Driver:
    """An optimizer of the lab, with a course of its LR by name if asked, after a warm-up over a share of the training. decays:
    whether it has the task's weight decay.
    """
    made = optimizers.build(name, model, lr, plan.weight_decay if decays else 0.0, torch.device("cpu"), **options)
    if course is None:
        return Driver(made)
    shares = [*factors(course, plan.steps, plan.steps, warmup=warmup), 0.0]
    return Driver(made, after=LambdaLR(made, shares.__getitem__).step)


def decayed(kind: str) -> Method:
    """The task's optimizer, at a multiple of its usual LR."""

    def make(model: nn.Module, plan: Plan, multiple: float | None) -> Driver:
        return built(model, plan, plan.optimizer, (multiple or 1.0) * plan.lr, kind, WARMUP)

    return make


def learned(law: str | Law = "universal", told: bool = True, knows: bool = False, **options: Any) -> Method:
    """`LearnedLR` on the task's optimizer, told every loss or none. knows: the batch and the model, too."""

    def make(model: nn.Module, plan: Plan, _: float | None) -> Driver:
        driver = built(model, plan, plan.optimizer, plan.lr)
        known: dict[str, Any] = {"batch_size": plan.batch, "model": model} if knows else {}
        lr = mlrsnet.LearnedLR(driver.optimizer, law, total_steps=plan.steps, **known, **options)
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


def schedule_free_plus(model: nn.Module, plan: Plan, _: float | None) -> Driver:
    """At its own LR, with a warm-up and no weight decay."""
    steps = round(WARMUP * plan.steps)
    return built(model, plan, "schedule-free-plus", 1.0, "fixed", WARMUP, decays=False, warmup_steps=steps)


def mechanic(model: nn.Module, plan: Plan, _: float | None) -> Driver:
    """Over the task's optimizer, with a cosine."""
    if plan.is_adaptive:
        return built(model, plan, "mechanic-adam", 1.0, "cosine", WARMUP, decouple=plan.optimizer == "adamw")
    return built(model, plan, "mechanic-sgd", 1.0, "cosine", WARMUP, momentum=0.9)


def adam_h(model: nn.Module, plan: Plan, _: float | None) -> Driver:
    """With its authors' LR and a longer warm-up."""
    return replace(built(model, plan, "adam-h", 0.02, "cosine", 2 * WARMUP, decays=False), clip=CLIP_NORM)


def calibrated(model: nn.Module, plan: Plan, _: float | None) -> Driver:
    """A cosine from the best LR for all trainings of the law's table, with the task's kind of optimizer."""
    return built(model, plan, plan.optimizer, CALIBRATED[KINDS[plan.optimizer]], "cosine", WARMUP)


def calibrated_adamw(model: nn.Module, plan: Plan, _: float | None) -> Driver:
    """The same with AdamW, whatever the task has."""
    return built(model, plan, "adamw", CALIBRATED["adam"], "cosine", WARMUP)


DECAYS: dict[str, Method] = {kind: decayed(kind) for kind in ("linear", "cosine")}
"""Their LRs are tuned on validation data."""

METHODS: dict[str, Method] = {
    **DECAYS,
    "one relative size": learned(ONE_SIZE, trained=False),
    "calibrated": calibrated,
    "calibrated AdamW": calibrated_adamw,
    "Schedule-Free": schedule_free,
    "ScheduleFree+": schedule_free_plus,
    "Prodigy": prodigy,
    "L-DoG": l_dog,
    "D-Adaptation": d_adapted,
    "Mechanic": mechanic,
    "AdamH": adam_h,
    "default": learned(),
    "default told more": learned(knows=True),
    "the law before": learned(LAW_BEFORE),
    "default without losses": learned(told=False),
    **{f"default x {scale:g}": learned(scale=scale) for scale in (0.5, 2.0)},
}
"""In the order in which they are run."""
