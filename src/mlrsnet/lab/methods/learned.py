"""A learned schedule, transferred (Algorithm 2)."""

import os
from pathlib import Path
from typing import Any

from torch import Tensor

from mlrsnet import pretrained
from mlrsnet.lab.methods.base import Method, Setting
from mlrsnet.scheduler import LearnedLR


def find(schedule: str, folder: Path | None) -> str | Path:
    """The file of that path beside the run's folder, where there is one; else what was given."""
    beside = Path(os.path.normpath((folder or Path()) / schedule))  # the folder may not be there yet
    return beside if beside.is_file() else schedule


class Learned(Method):
    """`LearnedLR` in the loop, as a user would have it.

    `schedule` is a name, the path of a .safetensors file, which may be relative to the run's folder, or `hf://owner/name`;
    `phases`: so many of its networks, evenly chosen; all of them if None.
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
        """This batch's loss sets this batch's LR."""
        self.learned.step(loss)
        self.optimizer.step()

    def scalars(self) -> dict[str, float]:
        """The range of the LR."""
        return {"gamma": float(self.learned.check()["gamma"])}

    def state_dict(self) -> dict[str, Any]:
        """LearnedLR's."""
        return self.learned.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """LearnedLR's."""
        self.learned.load_state_dict(state)
