"""Why an LSTM (Section 5.4, Fig. 12): LSTM and MLP as the schedule's network, meta-trained and transferred.

The paper shows curves without numbers: the MLP is better at first, the LSTM in the end.
"""

from dataclasses import replace

from mlrsnet.lab.recipes import table3
from mlrsnet.lab.recipes.base import Cell, Recipe
from mlrsnet.lab.recipes.rows import SCALES, SHORT, SMOKE, meta_trained, transferred

NETS = {"LSTM": "lstm", "MLP": "mlp"}


def cells(scale: str) -> list[Cell]:
    """Meta-trainings on pictures and on text, and transfers of what was learned on pictures."""
    chosen = SCALES[scale]
    pictures, text = chosen.spec("cifar10", "resnet18"), table3.language_model(scale, 2)
    every = table3.EVERY[scale]
    found = []
    for row, net in NETS.items():
        learned = Cell(row, "Meta-training: CIFAR-10", meta_trained(pictures, chosen, net=net))
        options = {"every": every, "net": net}
        found += [
            learned,
            Cell(row, "Meta-training: Penn Treebank", replace(text, schedule="mlr-snet", schedule_options=options)),
        ]
        tests = {
            "TinyImageNet": chosen.spec("tinyimagenet", "resnet18"),
            "Penn Treebank": table3.language_model(scale, 3),
        }
        found += [
            Cell(row, f"Transferred: {name}", transferred(test), learned_in=(learned.row, learned.column))
            for name, test in tests.items()
        ]
    return found


RECIPE = Recipe(
    "lstm-or-mlp",
    "LSTM or MLP as the schedule's network",
    "The MLP is better early in training, the LSTM at the end, meta-trained and transferred.",
    cells,
    notes={"smoke": (SMOKE, "Python's own manual stands in for Penn Treebank."), "short": (SHORT,)},
    stand_in=True,
)
