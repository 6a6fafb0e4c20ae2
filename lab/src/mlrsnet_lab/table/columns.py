"""The columns of the table: how a training is stepped, and how large its steps are."""

from dataclasses import dataclass

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
