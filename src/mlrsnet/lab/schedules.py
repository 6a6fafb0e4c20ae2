"""The schedules of the paper's Section 4.1 by their names there, stepped once per optimizer step.

Settings are the paper's, with lengths given as parts of the horizon: MultiStep divides by 10 every 30 % (60 of 200
epochs); Exponential multiplies by 0.95 an epoch; SGDR's cycles are 1/7, 2/7 and 4/7 of the horizon, so that it ends on
a finished cycle (the paper's 10, 20, 40, 80, ... epochs end in the middle of one).
"""

from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LRScheduler,
    MultiStepLR,
)

SGDR_MIN_LR = 1e-5


def fixed(optimizer: Optimizer, total_steps: int, epochs: int) -> LRScheduler:
    """The initial LR throughout."""
    return ConstantLR(optimizer, factor=1.0, total_iters=0)


def multistep(optimizer: Optimizer, total_steps: int, epochs: int) -> LRScheduler:
    """Divided by 10 after 30, 60 and 90 % of training."""
    return MultiStepLR(optimizer, [total_steps * part // 10 for part in (3, 6, 9)], gamma=0.1)


def exponential(optimizer: Optimizer, total_steps: int, epochs: int) -> LRScheduler:
    """Times 0.95 an epoch, a little every step."""
    return ExponentialLR(optimizer, 0.95 ** (epochs / total_steps))


def sgdr(optimizer: Optimizer, total_steps: int, epochs: int) -> LRScheduler:
    """Cosine with warm restarts, each cycle twice as long as the one before."""
    return CosineAnnealingWarmRestarts(optimizer, max(1, -(-total_steps // 7)), T_mult=2, eta_min=SGDR_MIN_LR)


def cosine(optimizer: Optimizer, total_steps: int, epochs: int) -> LRScheduler:
    """One half cosine to 0."""
    return CosineAnnealingLR(optimizer, total_steps)


HAND_DESIGNED: dict[str, Callable[[Optimizer, int, int], LRScheduler]] = {
    "Fixed": fixed,
    "MultiStep": multistep,
    "Exponential": exponential,
    "SGDR": sgdr,
    "Cosine": cosine,
}
