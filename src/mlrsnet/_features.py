"""What a schedule network reads, and how its answer is used. Pure functions of numbers or tensors.

A network reads a vector of named features. The paper has one, the training loss:

    x_t = (f_t / s,  u_t)      s: the loss scale,  u_t = min(t, T - 1) / T: the progress, see `Horizon`
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

WARMUP = 0.05
"""The share of a training over which a decay rises to its full height; it begins at a hundredth of it."""

LEVEL_WINDOW, LEVEL_STEPS = 0.05, 10
"""How far the level of the loss looks back: over this share of the training, at least over this many steps."""

SETTLED = 0.3
"""A level has settled when it has seen this share of its window."""

MARGIN = 0.1
"""A loss that falls by no more than this share may be noise."""

SPIKE = 100.0
"""A loss counts as at most this many times the first: a single spike must not hide what follows."""

SHORTEST_RISE = 0.1
"""The share of its length that a step keeps however far the loss has risen. Without it, a training that blew up would stand still
where it landed.
"""

SMALLEST_FACTOR = 1e-12
"""The factor never becomes 0: an optimizer may divide by its LR, as Adam's capturable path does."""


PROGRESS_UNIT = 2**24
"""Progress at which a line begins, as a whole number of parts: exact in float32 too, so every backend has the same line."""


class Horizon(NamedTuple):
    """The straight line that progress follows: from u_0 at step t_0 to 1 at step T. Numbers, or tensors of whole numbers.

    total_steps: T. begin: t_0. start: u_0 in parts of 1 / `PROGRESS_UNIT`. A training as planned begins at 0 with 0.
    """

    total_steps: Any
    begin: Any = 0
    start: Any = 0

    def annealed(self, step: int, steps: int) -> "Horizon":
        """The line from where progress is at `step` to 1, `steps` steps later. Only of numbers.

        >>> line = Horizon(100).annealed(50, 10)
        >>> line.total_steps, [progress(t, *line) for t in (50, 51, 59, 99)]
        (60, [0.5, 0.55, 0.95, 0.95])
        """
        length = self.total_steps - self.begin
        passed = min(step - self.begin, length - 1)
        parts = self.start * length + (PROGRESS_UNIT - self.start) * passed
        start = -(-parts // length)  # rounded up, so that no phase comes back
        return Horizon(step + steps, step, min(start, PROGRESS_UNIT - 1))


def progress(step: Any, total_steps: Any, begin: Any = 0, start: Any = 0) -> Any:
    """u = u_0 + (1 - u_0) min(t - t_0, S - 1) / S with S = T - t_0, which stays below 1; see `Horizon`. Numbers or tensors.

    >>> progress(30, 120), progress(500, 100)
    (0.25, 0.99)
    """
    passed, length, share = step - begin, total_steps - begin, start / PROGRESS_UNIT
    last = length - 1
    passed = torch.minimum(passed, last) if isinstance(step, Tensor) else min(passed, last)
    return share + (1 - share) * (passed / length)


def phase_index(
    step: Any, total_steps: Any, num_phases: int, operations: Operations = HOST, begin: Any = 0, start: Any = 0
) -> Any:
    """Which of `num_phases` equal parts of the training a step is in: floor(P u). The last part goes on past the end.

    >>> [phase_index(t, 10, 3) for t in (0, 3, 4, 6, 7, 9, 99)]
    [0, 0, 1, 1, 2, 2, 2]
    """
    passed, length = step - begin, total_steps - begin
    parts = start * length + (PROGRESS_UNIT - start) * passed
    return operations.at_most(num_phases * parts // (PROGRESS_UNIT * length), num_phases - 1)


def phase_borders(horizon: Horizon, num_phases: int) -> list[int]:
    """The steps at which phases begin from now on, but for the one that it is in now. Only of numbers.

    >>> phase_borders(Horizon(10), 3), phase_borders(Horizon(100).annealed(50, 12), 4)
    ([4, 7], [56])
    """
    length, first = horizon.total_steps - horizon.begin, num_phases * horizon.start // PROGRESS_UNIT + 1
    missing = [phase * PROGRESS_UNIT - num_phases * horizon.start for phase in range(first, num_phases)]
    steps = [-(-parts * length // (num_phases * (PROGRESS_UNIT - horizon.start))) for parts in missing]
    return [horizon.begin + step for step in steps if step < length]


def loss_divisor(loss_scale: str, initial_loss: Any, num_classes: Any, operations: Operations = HOST) -> Any:
    """s: what the loss is divided by before a network sees it.

    An untrained classifier's loss is about log(classes), so the first loss stands in where `num_classes` is None, or NaN in a
    tensor: where numbers are predicted.
    """
    if loss_scale == "none":
        return 1.0
    if loss_scale == "log_classes" and isinstance(num_classes, Tensor):
        return torch.where(torch.isnan(num_classes), initial_loss, torch.log(num_classes))
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


class Level(NamedTuple):
    """The level of the loss: its average divided by the first loss. All 0 before the first step.

    known: 1 after the first loss that is not 0, 2 after one that is negative. before: the last progress. first: the first loss
    that is not 0. sum, weight: of the average, which is sum / weight. settled: the level when its average had settled, 0 before.
    lowest: the lowest level since then, 0 before. caution: 1 - k, see `factor`; the only number that is set from outside.
    """

    known: Any
    before: Any
    first: Any
    sum: Any
    weight: Any
    settled: Any
    lowest: Any
    caution: Any

    def after(self, loss: Any, progress: Any, o: Operations) -> "Level":
        """After one more loss. One that is 0 is not read. After a negative one none is, since ratios of such losses mean nothing:
        the level stays as it is, or 1 if it was never known.
        """
        first = o.where(self.known == 0, loss, self.first)
        reads, ends = (loss > 0) & (self.known < 2), loss < 0
        most = SPIKE * o.where(first < 0, -first, first)
        passed = o.where(
            progress > self.before, progress - self.before, 0.0 * progress
        )  # a growing horizon sets it back
        fresh = 1 - o.exp(-o.clamp(passed / LEVEL_WINDOW, 0.0, 1 / LEVEL_STEPS))
        fresh = o.where(reads, fresh, 0.0 * fresh)
        sum_ = self.sum + fresh * (o.where(loss < most, loss, most) - self.sum)
        weight = self.weight + fresh * (1 - self.weight)
        level = self._replace(first=first, sum=sum_, weight=weight).level(o)
        is_settled = weight > SETTLED
        lowest = o.where(is_settled & ((self.lowest == 0) | (level < self.lowest)), level, self.lowest)
        known = o.where((self.known == 0) & (loss == 0), 0.0 * weight, 0.0 * weight + 1.0)
        return Level(
            known=o.where(ends | (self.known == 2), 0.0 * weight + 2.0, known),
            before=progress,
            first=first,
            sum=sum_,
            weight=weight,
            settled=o.where(is_settled & (self.settled == 0), level, self.settled),
            lowest=o.where(ends & (lowest > 0), level, lowest),  # a rise just before must not count for ever
            caution=self.caution,
        )

    def level(self, o: Operations) -> Any:
        """Average / first loss, at least `SMALLEST_LOSS`; 1 while it is not known."""
        usable = (self.weight > 0) & (self.first > 0)
        ratio = self.sum / o.where(usable, self.weight * self.first, 0.0 * self.sum + 1.0)
        return o.where(usable, o.clamp(ratio, SMALLEST_LOSS, SPIKE), 0.0 * self.sum + 1.0)

    def factor(self, fall_power: Any, rise_power: Any, o: Operations) -> Any:
        """min(1, level)^q * max(s, (lowest / level)^p) * max(k, gain), with gain = 1 - level / settled / (1 - `MARGIN`).

        The first makes steps shorter as the loss falls, the second when it rises again, to no less than s = `SHORTEST_RISE`.
        The last keeps them at the share k of their length until the loss has fallen: for networks that already know something,
        and could lose it.
        """
        level, one = self.level(o), 0.0 * self.sum + 1.0
        rise = o.where(self.lowest > 0, self.lowest / level, one)
        settled = o.where(self.settled > 0, self.settled, one)
        gain = o.where(self.settled > 0, 1 - level / settled / (1 - MARGIN), one - 1)
        waits = o.where(gain > 1 - self.caution, gain, 1 - self.caution)
        risen = o.clamp(o.clamp(rise, SMALLEST_LOSS, 1.0) ** rise_power, SHORTEST_RISE, 1.0)
        return o.clamp(level, SMALLEST_LOSS, 1.0) ** fall_power * risen * waits


def warm_up(progress: Any, o: Operations) -> Any:
    """A straight line from a hundredth up to 1, over `WARMUP` of the training."""
    return o.clamp(progress / WARMUP, 0.01, 1.0)


def anneal(kind: str, factor: Tensor, progress: Tensor | float) -> Tensor:
    """a(u) * p with a(u) = 1 (`none`, the paper) or 1 - u (`linear`), kept away from exactly 0."""
    if kind == "linear":
        factor = factor * (1 - progress)
    return factor.clamp(min=SMALLEST_FACTOR)
