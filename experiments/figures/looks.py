"""One colour per method in all figures of the paper: hand-designed thin, learned thick, darker with more meta-updates."""

from dataclasses import dataclass, replace

from mlrsnet_lab.recipes.rows import COSINE, DEFAULT
from mlrsnet_lab.recipes.table1 import HIGH_COSINE
from mlrsnet_lab.report.styles import BLACK, COLOURS, DASHES

BLUE, AMBER, GREEN, _, PINK, SKY, GREY = COLOURS
INDIGO, DASHED, DOTTED = "#5D3A9B", DASHES[1], (1.0, 1.2)
REDS = {100: "#F4A582", 30: "#E0603A", 10: "#C22B27", 6: "#8B0A1A"}
BLUES = {100: "#9ECAE1", 30: "#4A98C9", 10: "#2171B5", 6: "#08306B"}
"""By T_val; of an MLP as the schedule's network."""


@dataclass(frozen=True)
class Look:
    """How a method is drawn, and its name in legends."""

    label: str
    colour: str
    width: float = 1.2
    dashes: tuple[float, ...] = ()

    def dashed(self, dashes: tuple[float, ...]) -> "Look":
        """The same method on another task of the same panel."""
        return replace(self, dashes=dashes)


LOOKS = {
    "Fixed": Look("Fixed", GREY),
    "MultiStep": Look("MultiStep", BLUE),
    "Exponential": Look("Exponential", SKY),
    "SGDR": Look("SGDR", GREEN),
    "Adam": Look("Adam", AMBER),
    "L4": Look("L4", GREY, dashes=DOTTED),
    "HD": Look("HD", BLUE, dashes=DASHED),
    "RTHO": Look("RTHO", GREEN, dashes=DASHED),
    "SGD, val strategy": Look("SGD, val strategy", INDIGO, 1.4),
    "Adam, val strategy": Look("Adam, val strategy", AMBER, 1.4, DASHED),
    COSINE: Look("Cosine", PINK, 1.6),
    HIGH_COSINE: Look("Cosine from 1", PINK, 1.6, DASHED),
    "MLR-SNet": Look("MLR-SNet, T_val 100", REDS[100], 2.0),
    **{f"MLR-SNet, T_val {every}": Look(f"MLR-SNet, T_val {every}", REDS[every], 2.0) for every in (30, 10, 6)},
    DEFAULT: Look("The default", BLACK, 2.0),
}
"""By row, without how the row got its schedule; in the order of legends."""


def look(row: str) -> Look:
    """Of a row of a recipe.

    >>> look("MLR-SNet, transferred, T_val 6").label
    'MLR-SNet, T_val 6'
    """
    return LOOKS[row.replace(", meta-trained", "").replace(", transferred", "")]


def among(place: int, label: str) -> Look:
    """Of one of several variants of a method, by its place among them."""
    return Look(label, COLOURS[place % len(COLOURS)], 1.8)
