"""What the engine promises: what decides an LR, what is remembered between steps, and what a backend can do."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypedDict

from torch import Tensor

from mlrsnet import _check, _features
from mlrsnet._features import Horizon
from mlrsnet.nets import ScheduleNet
from mlrsnet.schedule import Schedule


@dataclass(frozen=True)
class Rule:
    """alpha_t = clip(scale * s_t * gamma * factor_t, min_lr, max_lr), with the factor from the schedule.

    s_t carries the range over to the optimizer: `gamma.optimizer_scale`, for Adam-like optimizers times `Gamma.adaptive_share`, or
    |w_t| / |d_t| where the range is relative, or c(m) rho_t where it is measured.
    """

    schedule: Schedule
    num_classes: int | None = None
    scale: float = 1.0
    min_lr: float = 0.0
    max_lr: float = float("inf")


def knows_progress(schedule: Schedule) -> bool:
    """Whether its LRs depend on how much of the training is over."""
    return "progress" in schedule.net.inputs or schedule.net.anneal != "none"


def check_keeps_range(schedule: Schedule) -> None:
    """Raise if a schedule computes its range anew in every phase, so that nothing else can change it."""
    if schedule.card.gamma.policy == "per-phase":
        raise ValueError(
            f"validation losses need a schedule that keeps its range, and {schedule.card.name!r} computes it anew in every phase: "
            "use another schedule, such as the default, or leave them out"
        )


def make_rule(schedule: Schedule, num_classes: int | None, scale: float, min_lr: float, max_lr: float | None) -> Rule:
    """A rule from the arguments of `LearnedLR`, checked."""
    if num_classes is not None:
        num_classes = _check.whole_number("num_classes", num_classes, 2, "classes, or the size of the vocabulary")
    elif schedule.card.gamma.needs_classes:
        raise ValueError(
            f"num_classes must be given for the schedule {schedule.card.name!r}, got None: the range of its LRs depends "
            "on it; pass the number of classes, or the size of the vocabulary"
        )
    low = _check.real("min_lr", min_lr)
    high = math.inf if max_lr is None else _check.real("max_lr", max_lr)
    if not 0 <= low <= high or high == 0:
        raise ValueError(
            f"min_lr and max_lr must satisfy 0 <= min_lr <= max_lr and max_lr > 0, got {min_lr!r} and {max_lr!r}"
        )
    return Rule(schedule, num_classes, _check.positive("scale", scale), low, high)


class Status(TypedDict):
    """Where a schedule stands. NaN means not known yet, phase -1 means before the first step.

    step: steps taken. nonfinite, unusable: losses that were skipped, since they were not finite or gave no range.
    outside: losses far outside the range that the schedule was learned on. lr: of the main group.
    """

    step: int
    phase: int
    initial_loss: float
    gamma: float
    lr: float
    nonfinite: int
    unusable: int
    outside: int


class Snapshot(Status):
    """All that a backend remembers, as plain numbers and CPU tensors. Any backend can continue from another's."""

    memory: Tensor
    history: Tensor
    ratio: float


class Moment(NamedTuple):
    """What the network reads at a step, for those who differentiate through it.

    The network reads loss / divisor. alpha_t = clip(scale * factor, min_lr, max_lr).
    """

    divisor: float
    progress: float
    memory: Tensor
    scale: float


class Backend(Protocol):
    """Where the numbers of an engine live: on the host for float LRs, on a device for tensor LRs."""

    rule: Rule
    on_host: bool
    optimizer_scale: float
    ratio: Any
    """|w| / |d| of the next step where the range is relative, rho where it is measured, else 1."""

    carry: Any
    """The `step.Carry` of the last step."""

    given: Sequence[float]
    """The groups' LRs as they were set last; on the host only."""

    def bind(self, groups: list[dict[str, Any]], ratios: list[float]) -> list[float]:
        """Take over the LRs of the parameter groups: group i gets alpha_t * ratios[i]. Returns the ratios as held here."""

    def is_bound(self, groups: list[dict[str, Any]]) -> bool:
        """Whether these are the groups that `bind` saw."""

    def step(self, loss: float | Tensor) -> None:
        """Advance by one loss and set the groups' LRs."""

    def set_ratio(self, ratio: Tensor) -> None:
        """Set |w| / |d|; a ratio that is no positive number leaves the old one."""

    def redo(self, ratio: Tensor) -> None:
        """Take the last step again, with another |w| / |d|, if there is one. Only for relative ranges."""

    def shorten(self, share: Any) -> None:
        """Multiply the LRs that the last step set, down to `min_lr`."""

    def moment(self, loss: float) -> Moment:
        """What the network would read if `loss`, a finite one, came now."""

    def set_weights(self, nets: Sequence[ScheduleNet]) -> None:
        """Continue with other weights of the same networks."""

    def set_memory(self, memory: Tensor) -> None:
        """Continue with another memory."""

    def copy_memory(self) -> Tensor:
        """The network's memory now."""

    def set_gamma(self, gamma: float, phase: int) -> None:
        """Continue with another gamma, as if it came from this phase."""

    def progress(self) -> Any:
        """u of the next step."""

    def alpha(self) -> float:
        """The LR of the main group now; waits for the device."""

    def set_horizon(self, horizon: Horizon) -> None:
        """Set when the training ends, and how progress goes there. Only of numbers."""

    def status(self) -> Status:
        """Where it stands; waits for the device."""

    def snapshot(self) -> Snapshot:
        """Everything that the next step depends on, as copies; waits for the device."""

    def restore(self, saved: Snapshot) -> None:
        """Continue from a snapshot."""


def moment(backend: Backend, status: Status, horizon: Horizon, loss: float) -> Moment:
    """What the network would read if `loss` came now, from where a backend stands."""
    rule, schedule = backend.rule, backend.rule.schedule
    first = loss if status["initial_loss"] != status["initial_loss"] else status["initial_loss"]
    gamma = schedule.card.gamma(first, rule.num_classes) if status["phase"] < 0 else status["gamma"]
    return Moment(
        divisor=schedule.loss_divisor(first, rule.num_classes),
        progress=_features.progress(status["step"], *horizon),
        memory=backend.copy_memory().cpu(),
        scale=rule.scale * backend.optimizer_scale * gamma,
    )


def check_first_loss(rule: Rule, loss: float, name: str) -> None:
    """Raise where a first loss gives no valid range or divisor; `name` is what the error calls it."""
    rule.schedule.card.gamma(loss, rule.num_classes, name)
    rule.schedule.loss_divisor(loss, rule.num_classes, name)
