"""Why an LSTM (Section 5.4, Fig. 12): LSTM and MLP as the schedule's network, meta-trained and transferred.

The paper shows curves without numbers: the MLP is better at first, the LSTM in the end.
"""

from dataclasses import replace

from mlrsnet_lab.recipes import table3
from mlrsnet_lab.recipes.rows import CPU, SCALES, SHORT, SMOKE, default, meta_rows, transferred
from mlrsnet_lab.sheets import Cell, Recipe

NETS: dict[str, dict[str, str]] = {"LSTM": {}, "MLP": {"net": "mlp"}}
"""The LSTM's runs are those of Tables 1 and 3."""


def cells(scale: str) -> list[Cell]:
    """Meta-trainings on pictures and on text, and transfers of what was learned on pictures."""
    chosen = SCALES[scale]
    pictures, text = chosen.spec("cifar10", "resnet18"), table3.language_model(scale, 2)
    tests = {"TinyImageNet": chosen.spec("tinyimagenet", "resnet18"), "Penn Treebank": table3.language_model(scale, 3)}
    found = []
    for name, options in NETS.items():
        by_text = table3.meta_rows(name, text, scale, name="ptb-lstm", **options)
        found += [Cell(row, "Meta-training: Penn Treebank", spec) for row, spec in by_text.items()]
        by_pictures = meta_rows(name, pictures, chosen, **options)
        found += [Cell(row, "Meta-training: CIFAR-10", spec) for row, spec in by_pictures.items()]
        for row in (f"{name}{end}" for end in chosen.for_transfer):
            found += [
                Cell(row, f"Transferred: {test}", transferred(tests[test]), learned_in=(row, "Meta-training: CIFAR-10"))
                for test in tests
            ]
    if scale == "cpu":
        there = {"Meta-training: CIFAR-10": pictures, "Meta-training: Penn Treebank": text}
        there |= {f"Transferred: {test}": spec for test, spec in tests.items()}
        found += [default(spec, column) for column, spec in there.items()]
        found = [replace(cell, optional=cell.column.endswith("TinyImageNet")) for cell in found]
    return found


RECIPE = Recipe(
    "lstm-or-mlp",
    "LSTM or MLP as the schedule's network",
    "The MLP is better early in training, the LSTM at the end, meta-trained and transferred.",
    cells,
    notes={
        "smoke": (SMOKE, "Python's own manual stands in for Penn Treebank."),
        "cpu": (*CPU, *table3.CPU[:1]),
        "short": (SHORT,),
    },
    stand_in=True,
)
