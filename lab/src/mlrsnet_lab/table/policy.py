"""The LRs of the table's columns: the default's equation, for many sizes side by side."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mlrsnet.default import Default
from mlrsnet.law import Facts, Seen
from mlrsnet.ranges import optimizer_scale
from mlrsnet.sensors import wide
from mlrsnet_lab import checks
from mlrsnet_lab.horizon.policies import Defaults
from mlrsnet_lab.table.columns import STRUCTURES, Sizing


class Sizes(Defaults):
    """One training for each column, with its size instead of the law's. Where that is an LR, the length of steps does not count.

    Args:
        columns: one for each training.
        device: where they run.
    """

    def __init__(self, columns: Sequence[Sizing], device: torch.device) -> None:
        for column in columns:
            checks.one_of("structure", column.structure, STRUCTURES)
        numbers = [(column.size, column.fall, column.rise, column.wait) for column in columns]
        self.sizes, fall, rise, self.waits = torch.tensor(numbers, dtype=wide(device), device=device).unbind(1)
        self.absolute = torch.tensor([column.structure == "absolute" for column in columns], device=device)
        super().__init__(len(columns), device, Default(horizon_power=0.0, fall=fall, rise=rise))  # type: ignore[arg-type]

    def begin(self, total_steps: int, facts: Sequence[Facts]) -> None:
        """See `Policy`."""
        super().begin(total_steps, facts)
        self.state.size.copy_(self.sizes)
        self.state.caution.copy_(self.waits)
        self.scale[self.absolute] = optimizer_scale(self.update.group)

    def seen(self, losses: Tensor, gradients: Tensor) -> Seen:
        """See `Defaults`."""
        found = super().seen(losses, gradients)
        told = ((1.0, found.x), (0.0, found.now), (1.0, found.guess))
        x, now, guess = (torch.where(self.absolute, instead, seen) for instead, seen in told)
        return found._replace(x=x, now=now, guess=guess)
