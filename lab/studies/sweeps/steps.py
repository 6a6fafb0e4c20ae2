"""From an LR to the relative step r that the default's law is about.

A step of the default moves the weights by r c(m) course(u) of their length; c(m) = sqrt((1 - m) / (1 + m)), m: momentum or beta_1.
So r is the relative step at the height of the training, divided by c(m). `default.py` has the law itself.
"""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mlrsnet.default import DEEPEST, USUAL_DEPTH, USUAL_SIZE, USUAL_STEPS, Size, course, kept
from mlrsnet.law import Facts

TIMES = 400
"""Equal parts of a training in which `followed` looks at the weights."""


def of_law(
    steps: float,
    size: float,
    batch: float,
    depth: int = DEEPEST,
    has_norms: bool = True,
    is_adaptive: bool = True,
    is_trained: bool = False,
) -> float:
    """The r of the default. Where nothing else is said: at least 12 matrices with norms, under Adam or one of its relatives.

    >>> round(of_law(500, 10_000, 32, depth=1, is_adaptive=False), 3), round(of_law(28_000, 139e6, 32), 4)
    (0.13, 0.0214)
    """
    facts = Facts(depth, round(size), has_norms, is_trained=is_trained, is_adaptive=is_adaptive, batch_size=batch)
    return Size()(facts, steps) * kept(facts)


def of_law_before(steps: float, size: float, depth: int = 1, is_trained: bool = False) -> float:
    """The r of the default before it knew batch and optimizer; depth: 1 with norms.

    >>> round(of_law_before(500, 10_000), 3), round(of_law_before(28_000, 139e6), 4)
    (0.13, 0.0142)
    """
    near = min(1.0, 150_000 / size) ** 0.5 if is_trained else 1.0
    deep = max(1.0, depth / USUAL_DEPTH) ** -1.2
    return float(0.13 * (steps / USUAL_STEPS) ** -0.1 * (size / USUAL_SIZE) ** -0.19 * deep * near)


def at_equilibrium(lr: float, decay: float) -> float:
    """r = sqrt(2 lr decay): weights that grow by their steps as fast as decay shortens them.

    With independent gradients a step of Adam has the length c(m) lr sqrt(n) and adds lr^2 n to |w|^2 once all that follows from its
    momentum is counted. Decay takes 2 lr decay |w|^2. Where the two are equal, |w| = sqrt(lr n / (2 decay)), so the relative step
    is c(m) sqrt(2 lr decay). The length of an update cancels, so this holds for any normalised update that keeps Adam's
    correlation in time.

    >>> round(at_equilibrium(0.001, 0.1), 4)
    0.0141
    """
    return math.sqrt(2 * lr * decay)


def from_length(lr: float, root_mean_square: float) -> float:
    """r = lr / rms(w): Adam moves each weight by about c(m) lr where its gradients are noise.

    >>> from_length(2e-5, 0.04)
    0.0005
    """
    return lr / root_mean_square


def followed(lr: float, decay: float, steps: int, shape: NDArray[np.float64], start: float) -> float:
    """r with the same sum of relative steps, where the length is followed from its start instead of being at equilibrium.

        d|w|^2 / dt = (lr_t)^2 - 2 lr_t decay |w|^2        |w| as a root mean square, |w_0| = start
        r = mean(lr_t / |w_t|) / mean(course)

    `shape` is the LR divided by its peak in the middle of each of so many equal parts of the training.

    >>> flat = np.ones(TIMES)
    >>> round(followed(1e-9, 0.1, 1000, flat, 0.02) * 0.02 / 1e-9 * mean_course(), 4)  # too short to move: lr / start
    1.0
    >>> round(followed(0.01, 0.1, 10**6, flat, 0.02) / at_equilibrium(0.01, 0.1) * mean_course(), 2)
    1.0
    """
    length, total = start**2, 0.0
    part = steps / len(shape)
    for now in lr * shape:
        shrink = math.exp(-2 * now * decay * part)
        grown = now / (2 * decay) * (1 - shrink) if now * decay > 0 else now**2 * part
        length = length * shrink + grown
        total += now / math.sqrt(length)
    return float(total) / len(shape) / mean_course()


@cache
def mean_course() -> float:
    """The mean of the default's course: what a constant LR is compared by.

    >>> round(mean_course(), 3)
    0.475
    """
    return float(np.mean([course(u) for u in (np.arange(10_000) + 0.5) / 10_000]))


def distance(r: float, steps: float) -> float:
    """How far weights go in a training under the default's course, relative to their length, if steps point anywhere.

    >>> round(distance(0.001, 10_000), 3)
    0.055
    """
    return r * math.sqrt(steps * _mean_square())


@cache
def _mean_square() -> float:
    return float(np.mean([course(u) ** 2 for u in (np.arange(10_000) + 0.5) / 10_000]))


def cosine(warmup: float, end: float) -> NDArray[np.float64]:
    """The `shape` of a cosine after a straight warm-up over a share of the training; `end`: the last LR / the peak.

    >>> shape = cosine(0.1, 0.0)
    >>> len(shape), round(float(shape.max()), 2), round(float(shape[-1]), 3)
    (400, 1.0, 0.0)
    """
    u = (np.arange(TIMES) + 0.5) / TIMES
    fall = end + (1 - end) * 0.5 * (1 + np.cos(np.pi * np.clip((u - warmup) / max(1e-9, 1 - warmup), 0, 1)))
    return np.where(u < warmup, u / max(warmup, 1e-9), fall)


def plateau(warmup: float, fall: float, is_root: bool = False) -> NDArray[np.float64]:
    """The `shape` of a straight warm-up, a plateau, and a fall to 0 over the last share: 1 - x, or 1 - sqrt(x).

    >>> shape = plateau(0.1, 0.5)
    >>> round(float(shape[100]), 2), round(float(shape[300]), 2), round(float(plateau(0.1, 0.5, True)[300]), 2)
    (1.0, 0.5, 0.29)
    """
    u = (np.arange(TIMES) + 0.5) / TIMES
    x = np.clip((u - 1 + fall) / max(fall, 1e-9), 0, 1)
    return np.where(u < warmup, u / max(warmup, 1e-9), 1 - (np.sqrt(x) if is_root else x))
