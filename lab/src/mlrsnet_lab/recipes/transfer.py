"""Transfer to other data (Section 4.2.3, Fig. 8): SVHN and TinyImageNet with ResNet-18, Penn Treebank with a 3-layer LSTM.

The paper shows curves without numbers: the transferred schedule is comparable with the best hand-designed one on each.
"""

from dataclasses import replace

from mlrsnet_lab.recipes import table3
from mlrsnet_lab.recipes.rows import (
    CPU,
    CPU_BESIDE,
    SCALES,
    SHIPPED_NOTE,
    SHORT_TRANSFER,
    SMOKE,
    TRANSFERS,
    checkpoints,
    cosine,
    default,
    from_sources,
    named,
    shipped,
    sources,
    transfer_cells,
)
from mlrsnet_lab.sheets import Cell, Recipe

PICTURES = {"SVHN": "svhn", "TinyImageNet": "tinyimagenet"}
FROM_TEXT, OVER_ADAM = "MLR-SNet, shipped, from text", "Universal LSTM, over Adam"
TEXT_NOTE = (
    f"{FROM_TEXT}: the shipped `ptb-lstm`, which Algorithm 1 left on Penn Treebank with 2 layers. {OVER_ADAM}: Adam as the paper "
    "has it for text."
)


def cells(scale: str) -> list[Cell]:
    """One meta-training on pictures, then pictures and text."""
    chosen, learned = TRANSFERS[scale], sources(SCALES[scale])
    found = [*learned]
    for column, task in list(PICTURES.items())[: 1 if scale == "smoke" else None]:
        cells = transfer_cells(chosen.spec(task, "resnet18"), chosen, column, learned)
        found += [replace(cell, optional=scale == "cpu") for cell in cells]
    text, column = table3.language_model(scale, 3), "Penn Treebank, 3-layer LSTM"
    rows = {
        "SGD, val strategy": replace(text, schedule="val-strategy"),
        "Adam, val strategy": replace(table3.over_adam(text), schedule="val-strategy"),
    }
    found += [Cell(row, column, spec) for row, spec in rows.items()]
    found += from_sources(text, column, learned)
    if scale == "smoke":
        return found
    if scale == "cpu":
        return [*found, cosine(text, column), default(text, column), *checkpoints(text, column)]
    adam = table3.over_adam(text)
    return [
        *found,
        cosine(text, column),
        *shipped(text, column),
        named(FROM_TEXT, column, text, "ptb-lstm"),
        named(OVER_ADAM, column, adam, "universal-lstm"),
    ]


RECIPE = Recipe(
    "transfer",
    "Transfer to other data",
    "The schedule that was learned on CIFAR-10 is comparable with the best hand-designed one on other pictures, and on text.",
    cells,
    notes={
        "all": ("For text the network reads loss / log(vocabulary), and gamma comes from the first perplexity.",),
        "smoke": (SMOKE, "Python's own manual stands in for Penn Treebank."),
        "cpu": (*CPU, CPU_BESIDE, *table3.CPU[:1]),
        "short": (SHORT_TRANSFER, "Text: 20 of 150 epochs.", SHIPPED_NOTE, TEXT_NOTE),
        "paper": (SHIPPED_NOTE, TEXT_NOTE),
    },
    stand_in=True,
)
