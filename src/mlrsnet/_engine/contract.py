"""What an engine needs to know to turn losses into LRs, and what it remembers between steps."""

from dataclasses import dataclass
from typing import NamedTuple, TypedDict

from torch import Tensor

from mlrsnet.schedule import Schedule


@dataclass(frozen=True)
class Rule:
    """alpha_t = clip(scale * s_t * gamma * factor_t, min_lr, max_lr), the factor from the schedule.

    s_t carries the range over to the optimizer: `gamma.optimizer_scale`, or |w_t| / |d_t| where the range is relative.

    A step, in every engine:

    1. A loss that is not finite is counted; nothing else changes.
    2. f_0 is the first finite loss unless it was given; gamma follows the card. A first loss that gives no valid gamma
       is refused: an error on the host, a counter on a device.
    3. The network of the current phase reads loss and progress; its memory advances; alpha_t follows; t becomes t + 1.
    """

    schedule: Schedule
    num_classes: int | None = None
    scale: float = 1.0
    min_lr: float = 0.0
    max_lr: float = float("inf")


class Report(TypedDict):
    """Where an engine stands. NaN: not known yet; phase -1: before the first step."""

    step: int
    phase: int
    initial_loss: float
    gamma: float
    lr: float
    nonfinite: int
    unusable: int
    outside: int


class Snapshot(Report):
    """All that an engine remembers, as plain numbers and CPU tensors; any engine goes on from any other's."""

    memory: Tensor
    history: Tensor
    ratio: float


class Moment(NamedTuple):
    """What the network reads at a step, for those who differentiate through it."""

    divisor: float
    """The network sees loss / divisor."""
    progress: float
    memory: Tensor
    range: float
    """gamma times every other factor: alpha_t = clip(range * factor, min_lr, max_lr)."""
