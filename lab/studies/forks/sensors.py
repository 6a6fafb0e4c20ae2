"""What can be seen of a training at a fork.

g        the gradient of a batch; G the mean over `BATCHES` fresh batches, b one of them
d        the last step, w - w before it
u        the last step without what momentum m carried over: d / lr - m d' / lr', with ' for the step before it
turn     the mean of <g, -d> / |g| |d| over the last steps, each g after d and from another batch; > 0: the last step was too
         short. Without noise: <G, -u> / |G| |u|, divided by the share of a gradient's length that is no noise
bend     <G - G', d> / |G| |d|, both from the same batches: the curvature that the step meets
polyak   log of loss / (|G| |d|): steps to go if the loss could fall to 0 along a straight line
prodigy  <G, w_0 - w> / |G| |w_0 - w|: > 0 as long as the way leads on from the start
"""

import copy
import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mlrsnet._optimizers import noise_scale

if TYPE_CHECKING:
    from lab.studies.forks.training import Training

BATCHES = 8
STEPS = 16
"""Steps over which a turn is averaged."""

LEVEL = 0.05
"""The share of a training over which a loss is averaged."""

TINY = 1e-12


class Watch:
    """Steps and gradients on the way.

    Args:
        weights: before the first step.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.start = self.now = flat(weights)
        self.step: Tensor | None = None
        self.fresh: Tensor | None = None
        self._pulled: Tensor | None = None
        self.path = 0.0
        self.turns: deque[tuple[float, float]] = deque(maxlen=STEPS)

    def see(self, weights: Sequence[Tensor]) -> None:
        """The gradients are there, and the step is not taken yet."""
        if self.step is not None and self.fresh is not None:
            gradient = gradients(weights)
            self.turns.append((cosine(gradient, -self.step), cosine(gradient, -self.fresh)))

    def moved(self, weights: Sequence[Tensor], group: dict[str, Any]) -> None:
        """The step was taken."""
        before, self.now = self.now, flat(weights)
        self.step = self.now - before
        pulled = self.step / max(float(group["lr"]), TINY)
        self.fresh = pulled if self._pulled is None else pulled - momentum(group) * self._pulled
        self._pulled = pulled
        self.path += float(self.step.norm())


def momentum(group: dict[str, Any]) -> float:
    """m of a parameter group."""
    square = float(noise_scale(group)) ** 2
    return (1 - square) / (1 + square)


def flat(weights: Sequence[Tensor]) -> Tensor:
    """One vector, a copy."""
    return torch.cat([weight.detach().flatten() for weight in weights])


def gradients(weights: Sequence[Tensor]) -> Tensor:
    """One vector; 0 for weights without."""
    return torch.cat([(torch.zeros_like(one) if one.grad is None else one.grad).flatten() for one in weights])


def cosine(a: Tensor, b: Tensor) -> float:
    """0 where one of them is 0."""
    return float(a @ b) / max(TINY, float(a.norm()) * float(b.norm()))


def sensed(training: "Training") -> dict[str, float]:
    """All sensors, as numbers of order 1. The training goes on as if nobody had looked."""
    watch = training.watch
    if watch is None or watch.step is None or watch.fresh is None or training.is_lost:
        raise ValueError(f"training must be watched and have taken a step, got step {training.step}")
    with torch.random.fork_rng():
        model = copy.deepcopy(training.model)
        here = fresh_gradients(training, model)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        put(weights, watch.now - watch.step)
        before = fresh_gradients(training, model).mean(0)
    mean, step, away = here.mean(0), watch.step, watch.now - watch.start
    length, pull = float(step.norm()), float(mean.norm())
    losses, level = training.losses, max(3, round(LEVEL * training.plan.steps))
    found = {
        "turn": sum(one for one, _ in watch.turns) / max(1, len(watch.turns)),
        "turn without momentum": sum(one for _, one in watch.turns) / max(1, len(watch.turns)),
        "turn of the mean": cosine(mean, -step),
        "turn of the mean without momentum": cosine(mean, -watch.fresh),
        "bend": float((mean - before) @ step) / max(TINY, pull * length),
        "straight": math.log(max(TINY, float(away.norm())) / max(TINY, watch.path)),
        "prodigy": cosine(mean, -away),
        "agreement": math.log(max(TINY, pull**2) / max(TINY, float(here.square().sum(1).mean()))),
        "polyak": math.log(max(1e-6, average(losses[-level:])) / max(TINY, pull * length)),
        "epoch border": jump(losses, training.plan),
        "level": ratio(losses[-level:], losses[:1]),
        "slope": ratio(losses[-level:], losses[-2 * level : -level]),
        "distance": math.log(max(TINY, float(away.norm())) / max(TINY, float(watch.start.norm()))),
        "growth": math.log(max(TINY, float(watch.now.norm())) / max(TINY, float(watch.start.norm()))),
    }
    found["turn without noise"] = found["turn of the mean without momentum"] / math.exp(found["agreement"] / 2)
    return {name: value if math.isfinite(value) else 0.0 for name, value in found.items()}


def fresh_gradients(training: "Training", model: nn.Module) -> Tensor:
    """(BATCHES, n): of the same batches whenever the training is at the same step, before they are clipped."""
    plan, weights = training.plan, [weight for weight in model.parameters() if weight.requires_grad]
    generator, found = torch.Generator().manual_seed(10_000 * plan.seed + training.step), []
    for place in range(BATCHES):
        torch.manual_seed(place)
        model.zero_grad()
        index = torch.randperm(plan.examples, generator=generator)[: plan.batch]
        training.task.loss(model, index).backward()
        found.append(gradients(weights))
    return torch.stack(found)


@torch.no_grad()
def put(weights: Sequence[Tensor], values: Tensor) -> None:
    """The reverse of `flat`."""
    for weight, part in zip(weights, torch.split(values, [one.numel() for one in weights]), strict=True):
        weight.copy_(part.view_as(weight))


def jump(losses: Sequence[float], plan: Any) -> float:
    """By how much the log of the loss fell from the end of an epoch to the begin of the next, at the last border: > 0 where what
    was seen is remembered. 0 in the first epoch.

    >>> from types import SimpleNamespace
    >>> round(jump([2.0] * 20 + [1.0] * 10, SimpleNamespace(examples=80, batch=4)), 2)
    0.69
    """
    epoch = max(1, plan.examples // plan.batch)
    near = max(1, min(10, epoch // 4))
    border = (len(losses) - near) // epoch * epoch
    return ratio(losses[border - near : border], losses[border : border + near]) if border >= epoch >= 4 else 0.0


def average(values: Sequence[float]) -> float:
    """The mean; 1 of none."""
    return sum(values) / len(values) if values else 1.0


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The log of the means' ratio; 0 where there is none.

    >>> ratio([1.0, 3.0], [2.0]), ratio([], [1.0]), ratio([1.0], [-1.0])
    (0.0, 0.0, 0.0)
    """
    usable = above and below and average(above) > 0 < average(below)
    return math.log(average(above) / average(below)) if usable else 0.0
