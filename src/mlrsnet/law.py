"""A law: what is known of a training before it, and what is seen at a step, make the LR of that step.

There are two: `default.Default`, an equation, and `schedule.Schedule`, a network that was meta-trained and the range of its answer.
"""

import math
from typing import Any, NamedTuple, Protocol

import torch

from mlrsnet.ops import HOST, Operations
from mlrsnet.plan import Plan


class Facts(NamedTuple):
    """What is known before the first step.

    matrices: tensors of two or more dimensions. parameters: numbers that are trained. has_norms: whether norms stand between the
    matrices. are_adapters: whether they stand beside frozen ones. is_trained: whether the weights come from another training; None
    for these three if nobody knows. is_adaptive: whether the optimizer divides by the size of the gradient. batch_size: examples in
    a step; None if nobody told. num_classes, initial_loss: as the user told.
    """

    matrices: int = 1
    parameters: int = 1
    has_norms: bool | None = None
    are_adapters: bool | None = None
    is_trained: bool | None = None
    is_adaptive: bool = False
    batch_size: int | None = None
    num_classes: Any = None
    initial_loss: Any = None

    @property
    def depth(self) -> int:
        """Matrices whose errors multiply up: all of them, or 1 for adapters."""
        return 1 if self.are_adapters else self.matrices

    def seen(self, weights: "Facts", is_adaptive: bool) -> "Facts":
        """What was told before, and what the weights and their optimizer say."""
        names = ("has_norms", "are_adapters", "is_trained")
        told = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        read = {name: getattr(weights, name) for name in ("matrices", "parameters", *names)}
        return self._replace(**{**read, **told}, is_adaptive=is_adaptive)


class Seen(NamedTuple):
    """What a law is told at a step: numbers, or tensors with any leading dimensions.

    loss: NaN where nobody told one. x: |step at an LR of 1|^2 / |weights|^2 of the step before, NaN before the first. now: the same
    of this step where it is known before it is taken, else 0. guess: the same of a first step, before anything was measured.
    scale: what carries a law's LR over to this optimizer. is_low: whether weights are too coarse to show short steps.
    """

    loss: Any
    x: Any = math.nan
    now: Any = 0.0
    guess: Any = 1.0
    scale: Any = 1.0
    is_low: bool = False


NOT_FINITE = "a loss was not finite, and was not read (status() counts such losses)"


class Law(Protocol):
    """What `LearnedLR` asks for an LR. Its functions are pure: a state is kept only once the step was taken.

    name: what it is called. needs_loss: whether a step without a loss is an error. num_phases: equal parts of a training in which
    it differs. knows_progress: whether its LRs depend on how much of the training is over.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def needs_loss(self) -> bool: ...  # noqa: D102
    @property
    def num_phases(self) -> int: ...  # noqa: D102
    @property
    def knows_progress(self) -> bool: ...  # noqa: D102

    def check(self, facts: Facts) -> None:
        """Raise for what a user told and this law cannot use."""

    def begin(self, facts: Facts) -> Any:
        """The state before the first step: named tuples of numbers and arrays, with `step`, its clock."""

    def carry_over(self, group: dict[str, Any], facts: Facts) -> Any:
        """What carries the law over to the optimizer of the main parameter group; read at every step."""

    def sensor(self, device: torch.device | None) -> Any:
        """The `sensors.Sensor` that it reads, with its numbers on a device, or on the host for None."""

    def on(self, device: torch.device) -> "Law":
        """The same law for states of tensors."""

    def advance(self, state: Any, seen: Seen, plan: Plan, o: Operations = HOST) -> tuple[Any, Any]:
        """The LR of the main group, before limits, and the state after this step."""

    def status(self, state: Any) -> dict[str, Any]:
        """What it has read of the losses, from a state of numbers."""

    def problems(self, state: Any) -> dict[str, str]:
        """What a user should hear about, by a name for each: warnings, from a state of numbers."""

    def fits(self, group: dict[str, Any]) -> str:
        """Why its LRs may be wrong for the optimizer of the main parameter group; empty where they are not."""

    def fingerprint(self) -> str:
        """A digest of everything that its LRs depend on."""
