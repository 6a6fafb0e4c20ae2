"""Hand-designed schedules as pure functions: a `Time` in, the factor of the initial LR out.

The paper gives some settings in epochs, of 200. Here they are shares of the training, so that they scale with its length.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mlrsnet import _check


class Time(NamedTuple):
    """Step `t`, from 0, of `total` steps, with `per_epoch` steps per epoch."""

    t: int
    total: int
    per_epoch: int


def fixed(time: Time) -> float:
    """The initial LR throughout: 1."""
    return 1.0


def multistep(time: Time, *, milestones: Sequence[float] = (0.3, 0.6, 0.9), factor: float = 0.1) -> float:
    """Multiply by `factor` at each milestone, a share of the training. The paper divides by 10 every 60 of 200 epochs."""
    for milestone in milestones:
        _part("each of milestones", milestone)
    return float(_share("factor", factor) ** sum(time.t >= round(part * time.total) for part in milestones))


def exponential(time: Time, *, factor: float = 0.95) -> float:
    """Multiply by `factor` after every epoch: factor^(t // per_epoch)."""
    return float(_share("factor", factor) ** (time.t // time.per_epoch))


def sgdr(time: Time, *, first_cycle: float = 0.05, growth: int = 2, end: float = 1e-4) -> float:
    """Half cosines from 1 to `end`, each `growth` times as long as the last (in the paper 10, 20, 40, ... of 200 epochs)."""
    _check.whole_number("growth", growth, hint="cycles that shrink would never reach the end")
    cycle, t = max(1.0, _part("first_cycle", first_cycle) * time.total), float(time.t)
    while t >= cycle:
        t, cycle = t - cycle, cycle * growth
    return _down_to(end, _half_cosine(t / cycle))


def cosine(time: Time, *, end: float = 0.0) -> float:
    """A half cosine from 1 to `end`: end + (1 - end) (1 + cos(pi t / total)) / 2."""
    return _down_to(end, _half_cosine(time.t / time.total))


def linear(time: Time, *, end: float = 0.0) -> float:
    """A straight line from 1 to `end`: end + (1 - end) (1 - t / total)."""
    return _down_to(end, 1 - time.t / time.total)


def one_cycle(time: Time, *, rise: float = 0.3, start: float = 0.04, end: float = 4e-6) -> float:
    """A half cosine from `start` up to 1 over the share `rise` of the training, then one down to `end`. Momentum is unchanged."""
    top, start, end = _part("rise", rise) * time.total, _share("start", start), _share("end", end)
    if time.t < top:
        return 1 - (1 - start) * _half_cosine(time.t / top)
    return _down_to(end, _half_cosine((time.t - top) / (time.total - top)))


HAND_DESIGNED: dict[str, Callable[..., float]] = {
    "fixed": fixed,
    "multistep": multistep,
    "exponential": exponential,
    "sgdr": sgdr,
    "cosine": cosine,
    "linear": linear,
    "one-cycle": one_cycle,
}


def factors(name: str, total: int, per_epoch: int, *, warmup: float = 0.0, **options: object) -> list[float]:
    """The factors of all steps of a training.

    Args:
        name: of the schedule.
        total: steps.
        per_epoch: steps per epoch.
        warmup: share of the training for a straight line up to 1; the schedule then takes the rest.
        **options: of the schedule.

    >>> factors("cosine", 4, 1)
    [1.0, 0.853..., 0.5, 0.146...]
    >>> factors("linear", 6, 1, warmup=1 / 3)
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if not 0 <= _check.real("warmup", warmup) < 1:
        raise ValueError(f"warmup must be in [0, 1), a share of the training, got {warmup!r}")
    rise = round(warmup * total)
    up = [(t + 1) / rise for t in range(rise)]
    schedule = HAND_DESIGNED[_check.one_of("schedule", name, HAND_DESIGNED)]
    found = up + [schedule(Time(t, total - rise, per_epoch), **options) for t in range(total - rise)]
    if not all(0 <= factor < math.inf for factor in found):
        raise ValueError(
            f"{name} must give finite factors >= 0 at every step, got others with {options}: change its options"
        )
    return found


def _part(name: str, value: object) -> float:
    part = _check.real(name, value, "a share of the training, such as 0.3")
    if not 0 < part <= 1:
        raise ValueError(f"{name} must be in (0, 1], a share of the training, not a number of epochs, got {value!r}")
    return part


def _share(name: str, value: object) -> float:
    return _check.real(name, value, "a share of the initial LR, such as 0.1")


def _down_to(end: float, part: float) -> float:
    """A line from 1 to `end` as `part` goes from 1 to 0."""
    end = _share("end", end)
    return end + (1 - end) * part


def _half_cosine(part: float) -> float:
    """From 1 to 0 as `part` goes from 0 to 1."""
    return (1 + math.cos(math.pi * part)) / 2
