"""What a schedule network reads, and what becomes of its answer. Pure functions of numbers or tensors.

A network sees a vector of named features, by default the paper's one, the training loss:

    x_t = (f_t / s,  u_t)      s: the loss scale,  u_t = min(t, T - 1) / T: the progress
    alpha_t = gamma * p(x_t) * a(u_t)      a: the anneal factor, 1 in the paper
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

INPUTS = ("loss", "progress")
LOSS_SCALES = ("none", "log_classes", "initial")
ANNEALS = ("none", "linear")

LARGEST_FEATURE = 1e4
"""Scaled losses are clipped here, so that no finite loss can overflow a network in float32."""

SMALLEST_LOSS = 1e-4
"""Scaled losses below it are all the same to a logarithm."""

SMALLEST_SPREAD = 1e-8
"""Below it, differences of the loss are rounding."""

FAST, SLOW = 0.02, 0.1
"""Parts of the horizon that averages of the loss look back over."""

SMALLEST_FACTOR = 1e-12
"""The factor never underflows to 0: an optimizer may divide by its LR (Adam's capturable path does)."""


def progress(step: Any, total_steps: Any) -> Any:
    """u = min(t, T - 1) / T, which stays below 1; both numbers or both tensors.

    >>> progress(30, 120), progress(500, 100)
    (0.25, 0.99)
    """
    if isinstance(step, Tensor):
        return torch.minimum(step, total_steps - 1) / total_steps
    return min(step, total_steps - 1) / total_steps


def phase_index(step: int, total_steps: int, num_phases: int) -> int:
    """Which of `num_phases` equal parts of the run a step lies in; the last one holds past the end.

    >>> [phase_index(t, 10, 3) for t in (0, 3, 4, 6, 7, 9, 99)]
    [0, 0, 1, 1, 2, 2, 2]
    """
    return min(num_phases * step // total_steps, num_phases - 1)


def stack_features(inputs: tuple[str, ...], loss: Tensor, progress: Tensor | float) -> Tensor:
    """Features in the order of `inputs` along a new last dimension; `loss` is already scaled."""
    columns = {
        "loss": loss.clamp(-LARGEST_FEATURE, LARGEST_FEATURE),
        "progress": torch.as_tensor(progress, dtype=loss.dtype, device=loss.device).expand_as(loss),
    }
    return torch.stack([columns[name] for name in inputs], dim=-1)


class Averages(NamedTuple):
    """How the logarithm of the scaled loss has moved; all 0 before the first step.

    known: 1 after the first step. before: the last progress. first: the first value. fast, slow: averages with weights
    exp(-passed progress / window). spread: average of (l - fast)^2 over the slow window.
    """

    known: Any
    before: Any
    first: Any
    fast: Any
    slow: Any
    spread: Any

    def after(self, loss: Tensor, progress: Tensor) -> "Averages":
        """With one more scaled loss."""
        log, begins = loss.clamp(min=SMALLEST_LOSS).log(), self.known == 0
        passed = (progress - self.before).clamp(min=0)  # a horizon that grows sets the progress back
        keeps = [torch.where(begins, 0.0, torch.exp(-passed / window)) for window in (FAST, SLOW)]
        fast, slow = (torch.lerp(log, old, keep) for old, keep in zip((self.fast, self.slow), keeps, strict=True))
        spread = torch.lerp((log - fast) ** 2, self.spread, keeps[1])
        return Averages(torch.ones_like(log), progress, torch.where(begins, log, self.first), fast, slow, spread)

    def features(self) -> list[Tensor]:
        """Level, trend, noise and first value, of about the same size."""
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
