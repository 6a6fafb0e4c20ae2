"""What went wrong in a training run: one warning each."""

from collections.abc import Mapping
from typing import Any

from mlrsnet import _check
from mlrsnet._engine.contract import Rule
from mlrsnet._features import loss_divisor

COUNTED = ("nonfinite", "unusable", "outside")
"""Counters of `Status` that a user hears about."""


class Problems:
    """Remembers what has been said. On a device, counters are seen when the host next reads them."""

    def __init__(self) -> None:
        self.warned: set[str] = set()
        self.known = dict.fromkeys(COUNTED, 0)
        self.seen: tuple[int, ...] = (0, 0, 0)

    def warn_once(self, kind: str, message: str) -> None:
        """Warn, the first time only."""
        if kind not in self.warned:
            self.warned.add(kind)
            _check.warn(message)

    def mark_known(self, status: Mapping[str, Any]) -> None:
        """Stay quiet about what has happened so far: a resumed run has warned before."""
        self.known = {kind: status[kind] for kind in COUNTED}

    def are_new(self, counts: tuple[int, ...]) -> bool:
        """Whether counters differ from those of the last call: cheap enough for every step."""
        if counts == self.seen:
            return False
        self.seen = counts
        return True

    def warn_counted(self, status: Mapping[str, Any], rule: Rule) -> None:
        """Warn about counters that have grown."""
        messages = {
            "unusable": no_range(status["unusable"]) if not status["step"] else "",
            "nonfinite": "a loss was not finite; LR and state were kept (status() counts such steps)",
            "outside": outside(status["initial_loss"], rule),
        }
        for kind, message in messages.items():
            if message and status[kind] > self.known[kind]:
                self.warn_once(kind, message)


def outside(initial_loss: float, rule: Rule) -> str:
    """That a loss was far from all that a schedule was learned on, in the unit of the user's loss."""
    card, net = rule.schedule.card, rule.schedule.net
    if card.loss_range is None:
        return (
            f"a loss was negative, and the schedule {card.name!r} was learned on positive ones only, so its LRs may not fit: use "
            "the default schedule, which takes any loss"
        )
    unit = loss_divisor(net.loss_scale, initial_loss, rule.num_classes)
    low, high = (unit * limit + 0.0 for limit in card.loss_range)
    classes = "pass num_classes=, " if net.loss_scale == "log_classes" and rule.num_classes is None else ""
    return (
        f"a loss was far outside those that the schedule {card.name!r} was learned on, in this training {low:.3g} to {high:.3g}, "
        f"and its LRs may not fit: check that the loss is a mean over the batch and not scaled, {classes}or use the default "
        "schedule, which reads only how the loss changes"
    )


def no_range(losses: int) -> str:
    """Why there is no LR yet, on a device."""
    return (
        f"the range of the LR could not be computed from any of the {losses} losses so far, and the optimizer's own LR was "
        "kept: pass initial_loss= the loss of an untrained network, about log(num_classes), or use 'universal-2', which takes "
        "any loss"
    )
