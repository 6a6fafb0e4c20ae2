"""Learned schedules, transferred (Algorithm 2), and the rule that they have to beat."""

import os
from pathlib import Path
from typing import Any

from torch import Tensor

from mlrsnet import Card, DecayNet, Gamma, Schedule
from mlrsnet.lab.methods.base import Method, Setting
from mlrsnet.scheduler import LearnedLR


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
    """

    def __init__(
        self, setting: Setting, *, schedule: str = "universal", scale: float = 1.0, phases: int | None = None
    ) -> None:
        chosen = Schedule.load(find(schedule, setting.folder))
        if phases is not None:
            chosen = chosen.choose(phases)
        if setting.is_text and chosen.card.gamma.needs_classes:
            chosen = chosen.for_text()
        super().__init__(setting, chosen, scale)


class RelativeRule(ByLearnedLR):
    """The plain rival of a law: measured steps of one size for all trainings, in a linear decay with 5 % warm-up.

    Args:
        setting: the training.
        size: r, a share of the weights' length.
    """

    def __init__(self, setting: Setting, *, size: float = 0.087) -> None:
        gamma = Gamma("measured", value=size)
        super().__init__(setting, Schedule(DecayNet(fall=0.0, rise=0.0), Card(name="relative rule", gamma=gamma)))
