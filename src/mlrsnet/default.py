"""The default schedule: from what is known of a network and seen of its training to the LR of the next step.

    alpha_t = r c(m) course(u) waits rise level^q / sqrt(mean of x)

    r        the law: by which share of their length the weights move in a step, at the height of the training
                 r = 0.13 (T / 500)^-0.15 (n / 10,000)^-0.17 (B / 32)^0.2 deep adaptive kept
             T: steps of the training. n: numbers that are trained. B: examples in a step, 32 where nobody told
    deep     of L matrices (1 for adapters) max(1, L / 4)^-1.4; with norms min(3, max(1, L / 4))^-0.2, since deeper networks with
             norms have branches that add up
    adaptive 1.9 for Adam and all that divide by the size of the gradient; else 1
    kept     for a network that was trained before, whose weights must stay near where they are: 1/2, or sqrt(60,000 / n) if that is
             less; else 1
    c(m)     sqrt((1 - m) / (1 + m)), m the momentum or beta_1: see `_optimizers.noise_scale`
    course   a warm-up over 5 % of the training, then a straight fall
    level    average loss / first loss; at most 1
    rise     (lowest level / level)^3, at least 0.1: shorter steps where the loss grows
    waits    a network that was trained before and is told losses keeps to 0.3 / kept of r until they have fallen, if
             that is less than r; else 1
    x        |step at an LR of 1|^2 / |weights|^2, of each step so far, see `sensors.Steps`. The mean is exponential, over a
             tenth of the training. Where the step is the gradient itself, as in plain SGD, x counts at least as it is now

Without a loss, level and rise are 1. So `LearnedLR` needs none.

The powers of r are round numbers that suit 436 small trainings of 23 families and other people's sweeps of large language models;
its constants come from the small ones (`lab/studies/law`). q was chosen on 48 others,
and the shares of trained networks that wait on the 36 fine-tunings among the 436.
The 60,000 gives other people's fine-tunings of DeBERTa, 139 million numbers, the LR that is usual there.
Everything here is a pure function of Python numbers or of tensors, with any leading dimensions.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from mlrsnet._optimizers import noise_scale
from mlrsnet.law import NOT_FINITE, Facts, Seen
from mlrsnet.ops import HOST, Operations
from mlrsnet.plan import Plan
from mlrsnet.sensors import Steps

NAME = "universal"
"""What the default is called."""

USUAL_STEPS, USUAL_SIZE, USUAL_BATCH, USUAL_DEPTH = 500, 10_000, 32, 4
"""For which r is its constant. The batch is assumed where nobody told."""

DEEPEST = 12
"""With norms, more matrices count as these: deeper networks with norms are residual, and their branches do not multiply up."""

WINDOW = 0.1
"""Of the training: how far the mean of x looks back. So many steps would mean something else in every training."""

WARMUP = 0.05
"""The share of a training over which the LR rises to its full height; it begins at a hundredth of it."""

LEVEL_WINDOW, LEVEL_STEPS = 0.05, 10
"""The level of the loss looks back over this share of the training, and at least over this many losses."""

SETTLED = 0.3
"""A level has settled when it has seen this share of its window."""

TRAINED_SIZE, TRAINED_SHARE = 60_000, 0.5
"""A trained network with n numbers keeps to sqrt(TRAINED_SIZE / n) of its steps, and at most to this share."""

MARGIN = 0.1
"""A loss that falls by no more than this share may be noise."""

SPIKE = 100.0
"""A loss counts as at most this many times the first: a single spike must not hide what follows."""

SMALLEST_LEVEL = 1e-4

SHORTEST_RISE = 0.1
"""The share of its length that a step keeps however far the loss has risen: a training that blew up must not stand still there."""


class Mean(NamedTuple):
    """Of x: sum / weight. `doubled` counts steps in low precision that moved nothing before anything was known."""

    sum: Any = 0.0
    weight: Any = 0.0
    doubled: Any = 0.0

    def after(self, x: Any, planned: Any, is_low: bool, o: Operations) -> "Mean":
        """With one more step. One that moved nothing or is not finite counts nothing."""
        counts, zero = (x > 0) & (x < math.inf), 0.0 * self.sum
        fresh = o.where(counts, 1 - o.exp(-1 / (WINDOW * planned)) + zero, zero)
        doubled = self.doubled + ((x == 0) & (self.weight == 0)) if is_low else self.doubled
        return Mean(
            self.sum + fresh * (o.where(counts, x, zero) - self.sum), self.weight + fresh * (1 - self.weight), doubled
        )

    def value(self, seen: Seen, o: Operations) -> Any:
        """The mean of x; before anything was measured, the guess for a first step, which doublings make smaller. NaN for none."""
        is_known = self.weight > 0
        mean = self.sum / o.where(is_known, self.weight, 1.0 + 0.0 * self.weight)
        mean = o.where(is_known, mean, seen.guess * 0.25**self.doubled)
        mean = o.where(seen.now > mean, seen.now + 0.0 * mean, mean)
        return o.where(mean > 0, mean, math.nan + 0.0 * mean)


class Level(NamedTuple):
    """The level of the loss: its average divided by the first loss.

    first: the first loss that is not 0; 0 before it. ended: 1 after a negative one, since ratios of such losses mean nothing.
    before: the progress at the last loss. sum, weight: of the average. now: the level; 1 while it is not known. settled: the
    level when its average had settled, lowest: the lowest one since then; 0 before.
    """

    first: Any = 0.0
    ended: Any = 0.0
    before: Any = 0.0
    sum: Any = 0.0
    weight: Any = 0.0
    now: Any = 1.0
    settled: Any = 0.0
    lowest: Any = 0.0

    def after(self, loss: Any, progress: Any, o: Operations) -> "Level":
        """With one more loss. One that is 0 or not finite is not read, and none after a negative one."""
        zero, told = 0.0 * self.sum, o.isfinite(loss)
        loss = o.where(told, loss, zero)
        reads, ends = (loss > 0) & (self.ended == 0), (loss < 0) | (self.ended > 0)
        first = o.where((self.first == 0) & reads, loss, self.first)
        passed = o.clamp(progress - self.before, 0.0, LEVEL_WINDOW / LEVEL_STEPS)
        fresh = o.where(reads, 1 - o.exp(-passed / LEVEL_WINDOW), zero)
        sum_ = self.sum + fresh * (o.smaller(loss, SPIKE * first) - self.sum)
        weight = self.weight + fresh * (1 - self.weight)
        one = 1.0 + zero
        known = (weight > 0) & (first > 0)
        mean = o.where(known, sum_, one) / o.where(known, weight, one)
        level = o.clamp(mean / o.where(known, first, one), SMALLEST_LEVEL, SPIKE)
        settles = weight > SETTLED
        lowest = o.where(settles & ((self.lowest == 0) | (level < self.lowest)), level, self.lowest)
        return Level(
            first=first,
            ended=o.where(ends, one, zero),
            before=o.where(told, progress + zero, self.before),
            sum=sum_,
            weight=weight,
            now=level,
            settled=o.where(settles & (self.settled == 0), level, self.settled),
            lowest=o.where((loss < 0) & (lowest > 0), level, lowest),  # a rise just before must not count for ever
        )

    def rise(self, o: Operations) -> Any:
        """lowest level / level."""
        return o.clamp(o.where(self.lowest > 0, self.lowest, self.now) / self.now, SMALLEST_LEVEL, 1.0)

    def gain(self, o: Operations) -> Any:
        """How far the loss has fallen since its level had settled: 0 for a fall that may be noise, 1 for one to 0."""
        settled = self.settled > 0
        share = self.now / o.where(settled, self.settled, self.now)
        return o.where(settled, 1 - share / (1 - MARGIN), 0.0 * share)


@dataclass(frozen=True)
class Size:
    """r of the usual training, and how it follows from facts: a power for each. See the head of this file.

    >>> Size()(Facts(parameters=10_000), 500), round(Size()(Facts(parameters=10_000, batch_size=1024), 500), 3)
    (0.13, 0.26)
    """

    usual: float = 0.13
    steps: float = -0.15
    parameters: float = -0.17
    batch: float = 0.2
    depth: float = -1.4
    depth_with_norms: float = -0.2
    adaptive: float = 1.9

    @classmethod
    def fixed(cls, size: float) -> "Size":
        """The same for every training."""
        return cls(size, steps=0, parameters=0, batch=0, depth=0, depth_with_norms=0, adaptive=1)

    def __call__(self, facts: Facts, total_steps: float = USUAL_STEPS) -> float:
        """r, but for `kept`."""
        deep = max(1.0, facts.depth / USUAL_DEPTH)
        return float(
            self.usual
            * self.of_steps(total_steps)
            * (max(1, facts.parameters) / USUAL_SIZE) ** self.parameters
            * ((facts.batch_size or USUAL_BATCH) / USUAL_BATCH) ** self.batch
            * (min(deep, DEEPEST / USUAL_DEPTH) ** self.depth_with_norms if facts.has_norms else deep**self.depth)
            * (self.adaptive if facts.is_adaptive else 1)
        )

    def of_steps(self, total_steps: Any) -> Any:
        """The part of r that follows the plan, which may grow."""
        return (total_steps / USUAL_STEPS) ** self.steps


class State(NamedTuple):
    """What the default remembers. step: steps taken. size: r at T = 500, with `kept`. caution: the share that waits for the loss to
    fall. nonfinite: losses that were not finite.
    """

    step: Any
    size: Any
    caution: Any
    nonfinite: Any
    mean: Mean
    level: Level


@dataclass(frozen=True)
class Default:
    """The default schedule as a `Law`.

    Args:
        size: r.
        caution: the share of a new network's steps that one which was trained before keeps to at first, told losses.
        fall: q, the power of the level.
        rise: the power of lowest level / level.
    """

    size: Size = Size()
    caution: float = 0.3
    fall: float = 0.1
    rise: float = 3.0

    name = NAME
    needs_loss = False
    num_phases = 1
    knows_progress = True

    def check(self, facts: Facts) -> None:
        """See `Law`: it takes any facts."""

    def sensor(self, device: torch.device | None) -> Steps:
        """See `Law`."""
        return Steps(device)

    def on(self, device: torch.device) -> "Default":
        """See `Law`: it is the same for tensors."""
        return self

    def begin(self, facts: Facts) -> State:
        """Before the first step."""
        near = kept(facts)
        caution = min(1.0, self.caution / near) if facts.is_trained else 1.0
        return State(0, self.size(facts) * near, caution, 0, Mean(), Level())

    def carry_over(self, group: dict[str, Any], facts: Facts) -> Any:
        """c(m) of the main parameter group, in every step: a cycled momentum is followed."""
        return noise_scale(group)

    def advance(self, state: State, seen: Seen, plan: Plan, o: Operations = HOST) -> tuple[Any, State]:
        """alpha_t, and what to remember if the step is taken; see the head of this file."""
        u = plan.progress(state.step + 0.0 * state.size, o)  # torch divides whole numbers in float32
        mean = state.mean.after(seen.x, plan.planned, seen.is_low, o)
        level = state.level.after(seen.loss, u, o)
        gain = level.gain(o)
        told = o.where(gain > state.caution, gain, state.caution + 0.0 * gain)
        waits = o.where(level.first > 0, told, 1.0 + 0.0 * gain)
        lr = (
            state.size * self.size.of_steps(plan.planned) * seen.scale
            * course(u, o)
            * waits
            * o.clamp(level.rise(o) ** self.rise, SHORTEST_RISE, 1.0)
            * o.clamp(level.now, SMALLEST_LEVEL, 1.0) ** self.fall
            / o.sqrt(mean.value(seen, o))
        )  # fmt: skip
        nonfinite = state.nonfinite + o.invert(o.isfinite(seen.loss) | o.isnan(seen.loss))
        return lr, state._replace(step=state.step + 1, nonfinite=nonfinite, mean=mean, level=level)

    def status(self, state: State) -> dict[str, Any]:
        """What it has read of the losses, as Python numbers: for people."""
        level = state.level
        return {"level": level.now, "lowest_level": level.lowest or math.nan, "nonfinite": state.nonfinite}

    def problems(self, state: State) -> dict[str, str]:
        """See `Law`."""
        return {"nonfinite": NOT_FINITE} if state.nonfinite else {}

    def fits(self, group: dict[str, Any]) -> str:
        """See `Law`: it measures what an optimizer does."""
        return ""

    def fingerprint(self) -> str:
        """See `Law`: a digest of its numbers."""
        numbers = {
            name: value for name, value in globals().items() if name.isupper() and isinstance(value, float | int)
        }
        return hashlib.sha256(repr((self, numbers)).encode()).hexdigest()


def kept(facts: Facts) -> float:
    """The share of its steps that a trained network keeps: then its weights stay near where they are.

    >>> [kept(Facts(parameters=n, is_trained=True)) for n in (1000, 6_000_000)], kept(Facts(parameters=6_000_000))
    ([0.5, 0.1], 1.0)
    """
    return min(TRAINED_SHARE, (TRAINED_SIZE / max(1, facts.parameters)) ** 0.5) if facts.is_trained else 1.0


def course(u: Any, o: Operations = HOST) -> Any:
    """A straight line from a hundredth up to 1 over the warm-up, then one from 1 down to 0, both at once.

    >>> [round(course(u), 4) for u in (0.0, 0.025, 0.05, 0.5, 1.0)]
    [0.01, 0.4875, 0.95, 0.5, 0.0]
    """
    return o.clamp(u / WARMUP, 0.01, 1.0) * (1 - u)
