"""Laws of growing knowledge compared on one table: a constant, power laws, small networks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from mlrsnet_lab.table.file import TrainingTable
from mlrsnet_lab.table.law import cross_validated, features, fit, network_cross_validated, responses

LAWS: tuple[tuple[str, ...], ...] = (
    (),
    ("horizon",),
    ("horizon", "parameters"),
    ("horizon", "parameters", "depth"),
    ("horizon", "parameters", "depth", "trained"),
    ("horizon", "parameters", "depth", "epochs"),
)
"""What each power law knows before the training, beside a constant."""


@dataclass(frozen=True)
class JudgedLaw:
    """A law, its gaps on families that it was not fitted on, and its coefficients fitted to all."""

    name: str
    gaps: Tensor
    knows: Sequence[str] = ()
    theta: Tensor | None = None

    @property
    def mean(self) -> float:
        """Mean gap."""
        return float(self.gaps.mean())

    @property
    def median(self) -> float:
        """Median gap."""
        return float(self.gaps.median())

    @property
    def worst(self) -> float:
        """Largest gap."""
        return float(self.gaps.max())

    def in_words(self) -> str:
        """The law, as an equation."""
        if self.theta is None:
            return ""
        size, *powers = self.theta.tolist()
        factors = "".join(f" {name}^{power:.2f}" for name, power in zip(self.knows, powers, strict=True))
        return f": {math.exp(size):.3f}{factors}"


def compare(table: TrainingTable) -> Iterator[JudgedLaw]:
    """All laws, for every structure and pair of powers that the table has."""
    families = [kind["family"] for kind in table.kinds]
    for (structure, fall, rise), response in responses(table).items():
        name = f"{structure}, fall^{fall:g}, rise^{rise:g}" if fall or rise else structure
        for knows in LAWS if structure != "absolute" else LAWS[:2]:
            x = features(table, knows)
            yield JudgedLaw(name, cross_validated(x, response, families), knows, fit(x, response))
        if structure != "absolute":
            x = features(table, LAWS[-1])
            yield JudgedLaw(f"{name}, network", network_cross_validated(x, response, families))
            yield JudgedLaw(f"{name}, best of each (oracle)", response.gaps.min(dim=1).values)
