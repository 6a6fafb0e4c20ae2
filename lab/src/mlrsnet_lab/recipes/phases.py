"""How many networks to transfer (Section 4.2.1, Fig. 6): k = 1, 2, 3, 4 and 6 of one meta-training, on CIFAR-100, ResNet-18.

The paper shows curves without numbers: (a) each network alone, given a constant loss of 5, settles at a constant LR; (b) with three
or more networks the results are similar.
"""

from mlrsnet_lab.recipes.rows import CPU, SCALES, SHORT, SMOKE, default, from_sources, sources
from mlrsnet_lab.sheets import Cell, Recipe

SAVED = 12
COUNTS = (1, 2, 3, 4, 6)


def cells(scale: str) -> list[Cell]:
    """One meta-training that keeps twelve networks, then trainings with k of them."""
    chosen = SCALES[scale]
    learned = sources(chosen, num_phases=SAVED)
    base, column = chosen.spec("cifar100", "resnet18"), "CIFAR-100"
    found = [*learned, *(cell for k in COUNTS for cell in from_sources(base, column, learned, f"k = {k}", phases=k))]
    return [*found, default(base, column)] if scale == "cpu" else found


RECIPE = Recipe(
    "phases",
    "How many networks of a meta-training to transfer",
    "Three networks or more do alike, one network alone does worse: its LR settles at a constant.",
    cells,
    notes={
        "all": (
            f"One meta-training keeps {SAVED} networks; k of them, at the end of each k-th of it, are transferred.",
            "Fig. 6a is the last picture of the meta-training: what each of its networks says by itself to a loss of 5.",
        ),
        "smoke": (SMOKE,),
        "cpu": CPU,
        "short": (SHORT,),
    },
    stand_in=True,
)
