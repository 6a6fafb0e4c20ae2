"""What a schedule network reads, and how its answer is used. Pure functions of numbers or tensors.

A network reads a vector of named features. The paper has one, the training loss:

    x_t = (f_t / s,  u_t)      s: the loss scale,  u_t = min(t, T - 1) / T: the progress
    alpha_t = gamma * p(x_t) * a(u_t)      a: the anneal factor, 1 in the paper
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mlrsnet._numbers import HOST, Operations

INPUTS = ("loss", "progress")
LOSS_SCALES = ("none", "log_classes", "initial")
ANNEALS = ("none", "linear")

LARGEST_FEATURE = 1e4
"""Scaled losses are clipped here: no finite loss can overflow a network in float32."""

SMALLEST_LOSS = 1e-4
"""Logarithms of scaled losses stop here."""

SMALLEST_SPREAD = 1e-8
"""A smaller variance of the loss is rounding."""

FAST, SLOW = 0.02, 0.1
"""How far averages of the loss look back, as fractions of the training."""

SMALLEST_FACTOR = 1e-12
"""The factor never becomes 0: an optimizer may divide by its LR, as Adam's capturable path does."""


def progress(step: Any, total_steps: Any) -> Any:
    """u = min(t, T - 1) / T, which stays below 1; both numbers or both tensors.

    >>> progress(30, 120), progress(500, 100)
    (0.25, 0.99)
    """
    if isinstance(step, Tensor):
        return torch.minimum(step, total_steps - 1) / total_steps
    return min(step, total_steps - 1) / total_steps


def phase_index(step: Any, total_steps: Any, num_phases: int, operations: Operations = HOST) -> Any:
    """Which of `num_phases` equal parts of the training a step is in. The last part goes on past the end.

    >>> [phase_index(t, 10, 3) for t in (0, 3, 4, 6, 7, 9, 99)]
    [0, 0, 1, 1, 2, 2, 2]
    """
    return operations.at_most(num_phases * step // total_steps, num_phases - 1)


def loss_divisor(loss_scale: str, initial_loss: Any, num_classes: Any, operations: Operations = HOST) -> Any:
    """s: what the loss is divided by before a network sees it.

    An untrained classifier's loss is about log(classes), so the first loss stands in where `num_classes` is None.
    """
    if loss_scale == "none":
        return 1.0
    if loss_scale == "log_classes" and num_classes is not None:
        return operations.log(num_classes)
    return initial_loss


def stack_features(inputs: tuple[str, ...], loss: Tensor, progress: Tensor | float) -> Tensor:
    """The features in the order of `inputs`, along a new last dimension. `loss` is already scaled."""
    columns = {
        "loss": loss.clamp(-LARGEST_FEATURE, LARGEST_FEATURE),
        "progress": torch.as_tensor(progress, dtype=loss.dtype, device=loss.device).expand_as(loss),
    }
    return torch.stack([columns[name] for name in inputs], dim=-1)


class Averages(NamedTuple):
    """How l, the logarithm of the scaled loss, has moved. All 0 before the first step.

    known: 1 after the first step. before: the last progress. first: the first l. fast, slow: averages of l with weights
    exp(-passed progress / window). spread: average of (l - fast)^2 over the slow window.
    """

    known: Any
    before: Any
    first: Any
    fast: Any
    slow: Any
    spread: Any

    def after(self, loss: Tensor, progress: Tensor) -> "Averages":
        """After one more scaled loss."""
        log, begins = loss.clamp(min=SMALLEST_LOSS).log(), self.known == 0
        passed = (progress - self.before).clamp(min=0)  # a horizon that grows sets the progress back
        keeps = [torch.where(begins, 0.0, torch.exp(-passed / window)) for window in (FAST, SLOW)]
        fast, slow = (torch.lerp(log, old, keep) for old, keep in zip((self.fast, self.slow), keeps, strict=True))
        spread = torch.lerp((log - fast) ** 2, self.spread, keeps[1])
        return Averages(torch.ones_like(log), progress, torch.where(begins, log, self.first), fast, slow, spread)

    def features(self) -> list[Tensor]:
        """Level, trend, noise and first value, scaled to similar sizes."""
        return [
            self.fast,
            3 * (self.fast - self.slow),
            3 * torch.sqrt(self.spread.clamp(min=SMALLEST_SPREAD)),
            self.first,
        ]


def anneal(kind: str, factor: Tensor, progress: Tensor | float) -> Tensor:
    """a(u) * p with a(u) = 1 (`none`, the paper) or 1 - u (`linear`), kept away from exactly 0."""
    if kind == "linear":
        factor = factor * (1 - progress)
    return factor.clamp(min=SMALLEST_FACTOR)
