"""The default on networks far larger than those its law was fitted to, for as many steps as a CPU has time for; not in the paper.

A law fitted to small networks may be wrong on large ones. Rows and usual LRs are among those of `proof`.
"""

from mlrsnet_lab.recipes.proof import LEARNED, decays, learned, rivals
from mlrsnet_lab.recipes.proof_tasks import LARGER, SMOKE
from mlrsnet_lab.sheets import Cell, Recipe

DEFAULT = "Universal"
RIVALS = ("One relative size", "Schedule-Free")
TIMES = (0.3, 1, 3, 10)
"""The grid of the linear decays, in multiples of the task's usual LR."""

ROWS = ("Cosine 1x", *(f"Linear {times:g}x" for times in TIMES), *RIVALS)


def cells(scale: str) -> list[Cell]:
    """The default, decays, and two rivals that need no tuning, on every task."""
    made = []
    for task in SMOKE[:1] if scale == "smoke" else LARGER:  # scale paper is the same as short
        rows = decays(task) | rivals(task)
        made += [learned(DEFAULT, task, LEARNED[DEFAULT]), *(Cell(row, task.name, rows[row]) for row in ROWS)]
    return made


RECIPE = Recipe(
    "larger",
    "The default, untuned, on networks 23 to 54 times larger than those its law was fitted to",
    "The law holds there: nothing is lost to decays whose LR was tuned.",
    cells,
    for_cpu=("smoke", "short"),
    notes={
        "all": (
            "Not in the paper. Rows and usual LRs are among those of the recipe proof.",
            "The largest network that the law was fitted to has 208,138 weights; these have 23 to 54 times as many.",
            "Only 186 to 513 steps, so that a CPU is enough: this tests the size of the steps, not whole trainings.",
        )
    },
    scales=("smoke", "short", "paper"),
)
