"""The columns of the table: how a training is stepped, and how large its steps are."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlrsnet.default import Default, Size
from mlrsnet.law import Facts, Seen
from mlrsnet.ranges import optimizer_scale
from mlrsnet.sensors import wide
from mlrsnet_lab import checks
from mlrsnet_lab.horizon.policies import Defaults

STRUCTURES = ("absolute", "weighted")
"""What can be trained: an LR, and steps of a share of the weights' length. Kept tables have other ones."""

SIZES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
READING = (0.1, 3.0)
"""Powers of the fall and the rise of the loss."""

LRS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""For plain SGD; carried over to other optimizers by `ranges.optimizer_scale`."""


@dataclass(frozen=True)
class Sizing:
    """The equation of `default`, with numbers of its own.

    structure: one of `STRUCTURES`. size: r, or the LR of plain SGD if absolute. fall, rise: powers; 0 does not read the loss.
    wait: the share of its steps that it keeps to until the loss has fallen; 1 does not wait.
    """

    structure: str
    size: float
    fall: float = 0.0
    rise: float = 0.0
    wait: float = 1.0

    def __str__(self) -> str:
        return "|".join((self.structure, *(f"{x:g}" for x in (self.size, self.fall, self.rise, self.wait))))

    @classmethod
    def parse(cls, text: str) -> "Sizing":
        """The reverse of `str`.

        >>> Sizing.parse("weighted|0.04|0.25|0")
        Sizing(structure='weighted', size=0.04, fall=0.25, rise=0.0, wait=1.0)
        """
        try:
            structure, *numbers = text.split("|")
            return cls(structure, *map(float, numbers))
        except (TypeError, ValueError):
            raise ValueError(
                f"a column must be 'structure|size|fall|rise', such as weighted|0.04|0.25|0, got {text!r}"
            ) from None


def grid() -> tuple[Sizing, ...]:
    """The columns of the shipped table: absolute LRs, and measured steps with and without reading the loss."""
    absolute = [Sizing("absolute", lr) for lr in LRS]
    reading = [Sizing("weighted", size, *READING) for size in SIZES]
    return (*absolute, *reading, *(Sizing("weighted", size) for size in SIZES[1:]))


class Sizes(Defaults):
    """The default's equation for many sizes side by side: one training for each column.

    Where a size is an LR, the length of steps does not count.

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
        super().__init__(len(columns), device, Default(Size.fixed(1.0), fall=fall, rise=rise))  # type: ignore[arg-type]

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
