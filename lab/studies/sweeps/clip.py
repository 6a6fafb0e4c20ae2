"""Model soups: a CLIP ViT-B/32 fine-tuned on ImageNet, 71 random settings; a check.

**Mapping.** r = lr / 0.03, as in `deberta`: lr * decay * steps stays below 1, so the weights keep about the length of pre-
training. 0.03 is a guess, so the constant is free; LRs and the curve are what can be read.

**Assumed.** AdamW and batches of 512 (the paper), n of 88 million (the picture half and a head of 1,000 classes). Label
smoothing, mixup and augmentation differ from training to training, and blur the curve.

One cell: eight equal parts of the logarithm of the LR from 1e-6 to 1e-4; the loss of a part is the median share of errors on
the 2 % of the training pictures that were held out. Steps: the median. The one-line rule is an LR of 1e-5.
"""

from pathlib import Path
from statistics import median

import numpy as np

from lab.studies.sweeps import steps
from lab.studies.sweeps.cells import Cell, cell
from lab.studies.sweeps.read import number, table

LENGTH, WEIGHTS, BATCH, PICTURES, USUAL_LR = 0.03, 88e6, 512, 0.98 * 1_281_167, 1e-5
PARTS = np.geomspace(1e-6, 1e-4, 9)


def cells(folder: Path) -> list[Cell]:
    """One."""
    rows = [row for row in table(folder, "clip_soups") if row["lr"]]
    part = [int(np.searchsorted(PARTS, number(row["lr"]), side="right")) - 1 for row in rows]
    middles = np.sqrt(PARTS[1:] * PARTS[:-1])
    errors = {
        at: [1 - number(row["held_out_2pct"]) for row, its in zip(rows, part, strict=True) if its == at]
        for at in range(8)
    }
    some = [at for at in errors if errors[at]]
    return [
        cell(
            [steps.from_length(float(middles[at]), LENGTH) for at in some],
            [median(errors[at]) for at in some],
            name="CLIP ViT-B/32",
            family="CLIP",
            group="CLIP",
            steps=median(number(row["epochs"]) for row in rows) * PICTURES / BATCH,
            size=WEIGHTS,
            batch=BATCH,
            is_trained=True,
            usual=steps.from_length(USUAL_LR, LENGTH),
        )
    ]


def kept(folder: Path) -> dict[str, float]:
    """The LR of the default, which keeps a trained network near where it is, and its errors above the best.

    "as new": those where it did not; and the same of the law before.
    """
    (only,) = cells(folder)
    new = steps.of_law(only.steps, WEIGHTS, BATCH)
    found = {"lr": only.law * LENGTH, "regret": only.regret(only.law), "as new": only.regret(new)}
    return {**found, "before, lr": only.before * LENGTH, "before": only.regret(only.before)}
