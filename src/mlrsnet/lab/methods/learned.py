"""A learned schedule, transferred (Algorithm 2)."""

import os
from pathlib import Path
from typing import Any

from torch import Tensor

from mlrsnet import pretrained
from mlrsnet.lab.methods.base import Method, Setting
from mlrsnet.scheduler import LearnedLR


def find(schedule: str, folder: Path | None) -> str | Path:
    """The file at this path relative to the run's folder if it exists, else what was given."""
    beside = Path(os.path.normpath((folder or Path()) / schedule))  # the folder may not exist yet
    return beside if beside.is_file() else schedule


class Learned(Method):
    """`LearnedLR`, used as in any training loop.

    Args:
        setting: the training.
        schedule: a name, `hf://owner/name`, or the path of a .safetensors file, which may be relative to the run's folder.
        scale: multiplies every LR.
        phases: how many of its networks to use, evenly spaced; all if None.
    """

    uses_lr = False

    def __init__(
        self, setting: Setting, *, schedule: str = "universal", scale: float = 1.0, phases: int | None = None
    ) -> None:
        super().__init__(setting)
        chosen = pretrained.load(find(schedule, setting.folder))
        if phases is not None:
            chosen = chosen.choose(phases)
        if setting.is_text and chosen.card.gamma.needs_classes:
            chosen = chosen.for_text()
        self.learned = LearnedLR(
            self.optimizer,
            chosen,
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
        return {"gamma": float(self.learned.check()["gamma"])}

    def state_dict(self) -> dict[str, Any]:
        """See `LearnedLR`."""
        return self.learned.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `LearnedLR`."""
        self.learned.load_state_dict(state)
