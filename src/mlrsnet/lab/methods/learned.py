"""Learned schedules, transferred (Algorithm 2), and the rule that they have to beat."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from mlrsnet import Card, DecayNet, Gamma, Schedule, _check
from mlrsnet._engine.contract import check_keeps_range
from mlrsnet._features import phase_borders
from mlrsnet.lab.methods.base import Method, Setting
from mlrsnet.scheduler import LearnedLR

GAMMAS = ("card", "paper", "authors")


def find(schedule: str, folder: Path | None) -> str | Path:
    """The file at this path relative to the run's folder if it exists, else what was given."""
    beside = Path(os.path.normpath((folder or Path()) / schedule))  # the folder may not exist yet
    return beside if beside.is_file() else schedule


class ByLearnedLR(Method):
    """`LearnedLR`, used as in any training loop."""

    uses_lr = False

    def __init__(self, setting: Setting, schedule: Schedule, scale: float = 1.0) -> None:
        super().__init__(setting)
        self.learned = LearnedLR(
            self.optimizer,
            schedule,
            total_steps=setting.total_steps,
            num_classes=setting.num_classes,
            scale=scale,
            process_group=False,  # the loop has averaged the loss
        )

    def step(self, loss: Tensor) -> None:
        """Set the LR by this batch's loss, then move the weights."""
        self.learned.step(loss)
        self.optimizer.step()

    def scalars(self) -> dict[str, float]:
        """Gamma, the range of the LR."""
        return {"gamma": float(self.learned.status()["gamma"])}

    def state_dict(self) -> dict[str, Any]:
        """See `LearnedLR`."""
        return self.learned.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `LearnedLR`."""
        self.learned.load_state_dict(state)


class Learned(ByLearnedLR):
    """A schedule that was learned elsewhere.

    Args:
        setting: the training.
        schedule: a name, `hf://owner/name`, or the path of a .safetensors file, which may be relative to the run's folder.
        scale: multiplies every LR.
        phases: how many of its networks to use, evenly spaced; all if None.
        gamma: when the range is computed, where it comes from a loss. `card`: as the schedule says. `paper`: once, from the first
            batch's loss. `authors`: where a phase begins, from the mean loss of the whole training set in evaluation mode, as the
            authors' meta-test does.
        validate: give it the validation loss after every epoch; see `LearnedLR.validate`.
    """

    def __init__(
        self,
        setting: Setting,
        *,
        schedule: str = "universal",
        scale: float = 1.0,
        phases: int | None = None,
        gamma: str = "card",
        validate: bool = False,
    ) -> None:
        chosen = Schedule.load(find(schedule, setting.folder))
        if phases is not None:
            chosen = chosen.choose(phases)
        if setting.is_text and chosen.card.gamma.needs_classes:
            chosen = chosen.for_text()
        if _check.one_of("gamma", gamma, GAMMAS) != "card":
            chosen = _without_policy(chosen)
        if validate:
            check_keeps_range(chosen)
        super().__init__(setting, chosen, scale)
        borders = phase_borders(self.learned.engine.horizon, chosen.num_phases)
        self.renewals = frozenset((0, *borders) if gamma == "authors" else ())
        self.steps, self.reads_val_loss = 0, validate

    def before_step(self) -> None:
        """Renew gamma where a phase begins; it is written in place, so captured steps follow."""
        if self.steps in self.renewals:
            self.learned.renew_gamma(self.setting.mean_train_loss())
        self.steps += 1

    def end_epoch(self, val_loss: float) -> None:
        """Shorten the steps where the validation loss has stopped falling."""
        if self.reads_val_loss:
            self.learned.validate(val_loss)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `LearnedLR`."""
        super().load_state_dict(state)
        status = self.learned.status()
        self.steps = status["step"] + status["nonfinite"] + status["unusable"]


def _without_policy(schedule: Schedule) -> Schedule:
    """The schedule with a gamma that is computed once; later ones have to be given."""
    gamma = schedule.card.gamma
    if not gamma.needs_classes:
        raise ValueError(
            f"gamma must be 'card' for the schedule {schedule.card.name!r}, whose range is {gamma.policy} and does not come from "
            "a loss: leave it out"
        )
    return Schedule(schedule.phases, replace(schedule.card, gamma=replace(gamma, policy="initial")))


class RelativeRule(ByLearnedLR):
    """The plain rival of a law: measured steps of one size for all trainings, in a linear decay with 5 % warm-up.

    Args:
        setting: the training.
        size: r, a share of the weights' length.
    """

    def __init__(self, setting: Setting, *, size: float = 0.087) -> None:
        gamma = Gamma("measured", value=size)
        super().__init__(setting, Schedule(DecayNet(fall=0.0, rise=0.0), Card(name="relative rule", gamma=gamma)))
