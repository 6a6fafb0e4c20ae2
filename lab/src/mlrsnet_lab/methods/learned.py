"""Learned schedules, transferred (Algorithm 2), and the rule that they have to beat."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from mlrsnet import LearnedLR, Schedule
from mlrsnet.default import Default, Size
from mlrsnet.law import Law
from mlrsnet.ops import HOST, Operations
from mlrsnet.plan import Plan
from mlrsnet.ranges import Gamma, PerplexityGamma
from mlrsnet_lab import checks
from mlrsnet_lab.methods.base import Method, Setting

GAMMAS = ("card", "paper", "authors")


def find(schedule: str, folder: Path | None) -> str | Path:
    """The file at this path relative to the run's folder if it exists, else what was given."""
    beside = Path(os.path.normpath((folder or Path()) / schedule))  # the folder may not exist yet
    return beside if beside.is_file() else schedule


@dataclass(frozen=True)
class MeanLossGamma(Gamma):
    """|gamma| of a loss that is set before the steps at which phases begin, whatever the loss of these steps is.

    The authors' program takes the mean loss of the training set, and the size of the formula, which is negative late in a training.
    """

    of: Gamma
    mean_loss: Tensor
    is_renewed: ClassVar[bool] = True

    def set(self, loss: float, num_classes: int | None) -> None:
        """For the phase that begins; in place, so that captured steps follow."""
        value = abs(float(self.of.formula(loss, num_classes, HOST)))
        checks.positive(f"gamma from the mean loss {loss!r}", value, "it must be > 0, other than 1 / classes")
        self.mean_loss.fill_(loss)

    def formula(self, loss: Any, num_classes: Any, o: Operations) -> Any:
        """See `Gamma`."""
        mean = float(self.mean_loss) if o is HOST else self.mean_loss.to(loss.dtype)
        return abs(self.of.formula(mean, num_classes, o))

    def carry_over(self, group: dict[str, Any], num_classes: int | None) -> float:
        """See `Gamma`."""
        return self.of.carry_over(group, num_classes)


class ByLearnedLR(Method):
    """`LearnedLR`, used as in any training loop. With `tells_loss=False` it is told no loss; `trained`: see there."""

    uses_lr = False

    def __init__(
        self, setting: Setting, law: Law, scale: float = 1.0, tells_loss: bool = True, trained: bool | None = None
    ) -> None:
        super().__init__(setting)
        self.tells_loss = tells_loss
        self.learned = LearnedLR(
            self.optimizer,
            law,
            total_steps=setting.total_steps,
            num_classes=setting.num_classes,
            trained=trained,
            scale=scale,
            process_group=False,  # the loop has averaged the loss
        )

    def step(self, loss: Tensor) -> None:
        """Tell this batch's loss, then move the weights, which sets the LR."""
        if self.tells_loss:
            self.learned.step(loss)
        self.optimizer.step()

    def scalars(self) -> dict[str, float]:
        """Gamma, the range of a network's LRs."""
        status = self.learned.status()
        return {"gamma": float(status["gamma"])} if "gamma" in status else {}

    def state_dict(self) -> dict[str, Any]:
        """See `LearnedLR`."""
        return self.learned.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `LearnedLR`."""
        self.learned.load_state_dict(state)


class Learned(ByLearnedLR):
    """A schedule that was learned elsewhere, or the default.

    Args:
        setting: the training.
        schedule: a name, `hf://owner/name`, or the path of a .safetensors file, which may be relative to the run's folder.
        scale: multiplies every LR.
        phases: how many of its networks to use, evenly spaced; all if None.
        gamma: when the range is computed, where it comes from a loss. `card`: as the schedule says. `paper`: once, from the first
            batch's loss. `authors`: where a phase begins, from the mean loss of the whole training set in evaluation mode, as the
            authors' meta-test does.
        validate: give it the validation loss after every epoch; see `LearnedLR.validate`.
        tells_loss: whether it is told the loss of every step; the default needs none.
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
        tells_loss: bool = True,
    ) -> None:
        law = Schedule.load(find(schedule, setting.folder))
        if phases is not None:
            law = _network(law, "phases", "None").choose(phases)
        if setting.is_text and isinstance(law, Schedule) and law.card.gamma.needs_classes:
            law = law.for_text()
        self.mean_gamma: MeanLossGamma | None = None
        if checks.one_of("gamma", gamma, GAMMAS) != "card":
            law = self._with_range(_network(law, "gamma", "'card'"), gamma, setting)
        if law.needs_loss and not tells_loss:
            raise ValueError(f"tells_loss must be true for the schedule {law.name!r}, a network that reads the loss")
        super().__init__(setting, law, scale, tells_loss)
        borders = Plan.of(setting.total_steps).borders(law.num_phases)
        self.renewals = {0, *borders} if self.mean_gamma else set[int]()
        self.steps, self.reads_val_loss = 0, validate

    def before_step(self) -> None:
        """Find the range where a phase begins."""
        if self.mean_gamma is not None and self.steps in self.renewals:
            self.mean_gamma.set(self.setting.mean_train_loss(), self.setting.num_classes)
        self.steps += 1

    def end_epoch(self, val_loss: float) -> None:
        """Shorten the steps where the validation loss has stopped falling."""
        if self.reads_val_loss:
            self.learned.validate(val_loss)

    def state_dict(self) -> dict[str, Any]:
        """That of `LearnedLR`, and the steps so far."""
        return {"learned": super().state_dict(), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `state_dict`."""
        super().load_state_dict(state["learned"])
        self.steps = state["steps"]

    def _with_range(self, schedule: Schedule, gamma: str, setting: Setting) -> Schedule:
        """The schedule with a range that is computed once, or from mean losses."""
        own = schedule.card.gamma
        if not own.needs_classes:
            raise ValueError(
                f"gamma must be 'card' for the schedule {schedule.name!r}, whose range does not come from a loss: leave it out"
            )
        chosen = PerplexityGamma() if isinstance(own, PerplexityGamma) else Gamma()
        if gamma == "authors":
            lr = setting.optimizer.param_groups[0]["lr"]
            place = lr.device if isinstance(lr, Tensor) else None
            chosen = self.mean_gamma = MeanLossGamma(chosen, torch.zeros((), dtype=torch.float64, device=place))
        return Schedule(schedule.phases, replace(schedule.card, gamma=chosen))


def _network(law: Law, option: str, default: str) -> Schedule:
    if not isinstance(law, Schedule):
        raise ValueError(f"{option} must be {default} for the schedule {law.name!r}, which is no network: leave it out")
    return law


class RelativeRule(ByLearnedLR):
    """The plain rival of a law: measured steps of one size for all trainings, in a linear decay with 5 % warm-up.

    Args:
        setting: the training.
        size: r, a share of the weights' length.
    """

    def __init__(self, setting: Setting, *, size: float = 0.087) -> None:
        law = Default(Size.fixed(checks.positive("size", size)), fall=0.0, rise=0.0)
        super().__init__(setting, law, trained=False)
