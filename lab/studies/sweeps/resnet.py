"""step-back: a ResNet-18 on ImageNet at 32x32, 45 epochs of a constant LR, with the length of the weights in every epoch.

**Mapping.** The relative step of an epoch, from what was logged at its end:

    SGD with momentum 0.9      r_e = lr |g| / ((1 - 0.9) |w|)    |step| = lr |g| / sqrt(1 - m^2) in noise, over c(m)
    AdamW                      r_e = lr sqrt(n) / |w|            each weight moves by c(m) lr

    r = mean of r_e / mean of the default's course                 since these LRs do not fall

|w|^2 is the logged square minus 4,800: the logged length is that of all weights, and the network has 4,800 gains of norms that
begin at 1, more than all matrices together. The law's |w| is that of the matrices.

**Assumed.** The gains stay near 1. Of |g|, the last batch of an epoch stands for the epoch, and the gains have little of it.
AdamW's gradients are noise, so its r is an upper bound. Momentum without dampening. n: 11.69 million. An epoch in which a
length is not finite does not count; a training without any is left out. MoMo's LR is only a cap on its steps, which are not
logged: left out.

**After the results were seen**: a training whose r is not larger than that of every smaller LR is left out (`rising`).

A cell, and a family, is an optimizer with a decay: four, and nothing but the constant can be read off them. The loss is the
share of errors on the validation pictures at the end. LRs are a factor of ten apart. The one-line rule is an LR of 0.1 for SGD,
0.001 for AdamW.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from lab.studies.sweeps import steps
from lab.studies.sweeps.cells import Cell, cell
from lab.studies.sweeps.read import Row, grouped, number, table

WEIGHTS, GAINS, MOMENTUM, BATCH = 11_690_000, 4_800, 0.9, 128
EPOCHS = 45
STEPS = EPOCHS * (1_281_167 // BATCH)
USUAL_LR = {"sgd-m": 0.1, "adamw": 0.001}


def cells(folder: Path) -> list[Cell]:
    """Four."""
    return [_cell(some) for some in _by_setting(folder).values()]


def best_lrs(folder: Path) -> dict[str, float]:
    """The LR with the fewest errors at the end, of each cell."""
    last = str(EPOCHS - 1)
    ends = {key: [row for row in some if row["epoch"] == last] for key, some in _by_setting(folder).items()}
    best = {" ".join(key): max(some, key=lambda row: number(row["val_acc"])) for key, some in ends.items()}
    return {name: number(row["lr"]) for name, row in best.items()}


def _by_setting(folder: Path) -> dict[tuple[str, ...], list[Row]]:
    rows = [row for row in table(folder, "stepback_imagenet32_resnet18") if row["optimizer"] in USUAL_LR]
    return grouped(rows, lambda row: (row["optimizer"], row["weight_decay"]))


def relative(optimizer: str, lr: float, length: float, gradient: float) -> float:
    """r_e of an epoch.

    >>> round(relative("sgd-m", 0.01, math.hypot(100, math.sqrt(4800)), 2.0), 4)
    0.002
    >>> round(relative("adamw", 0.001, math.hypot(100, math.sqrt(4800)), 2.0), 4)
    0.0342
    """
    matrices = math.sqrt(length**2 - GAINS) if length**2 > GAINS else math.nan
    moves = math.sqrt(WEIGHTS) if optimizer == "adamw" else gradient / (1 - MOMENTUM)
    return lr * moves / matrices


def _cell(rows: list[Row]) -> Cell:
    first = rows[0]
    found = [_training(some) for some in grouped(rows, lambda row: (row["lr"],)).values()]
    kept = rising(found)
    usual = USUAL_LR[first["optimizer"]]
    return cell(
        [r for _, r, _ in kept],
        [error for _, _, error in kept],
        name=f"{first['optimizer']}, decay {first['weight_decay']}",
        family=f"{first['optimizer']} {first['weight_decay']}",
        group=f"ResNet-18, {first['optimizer']}",
        steps=float(STEPS),
        size=WEIGHTS,
        batch=BATCH,
        is_adaptive=first["optimizer"] == "adamw",
        usual=next((r for lr, r, _ in kept if lr == usual), math.nan),
    )


def rising(found: Sequence[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """Those with a larger r than all of smaller LRs. The others blew up: weights that are a thousand times longer make a small r.

    >>> rising([(0.1, 0.01, 0.5), (1.0, 0.05, 0.9), (10.0, 0.02, 0.99), (100.0, math.nan, 0.99)])
    [(0.1, 0.01, 0.5), (1.0, 0.05, 0.9)]
    """
    kept: list[tuple[float, float, float]] = []
    for one in sorted(found):
        if one[1] > max((r for _, r, _ in kept), default=0.0):
            kept.append(one)
    return kept


def _training(rows: Sequence[Row]) -> tuple[float, float, float]:
    """Its LR, its r and its share of errors at the end."""
    lr, optimizer = number(rows[0]["lr"]), rows[0]["optimizer"]
    epochs = [relative(optimizer, lr, number(row["model_norm"]), number(row["grad_norm"])) for row in rows]
    finite = [r for r in epochs if math.isfinite(r)]
    r = mean(finite) / steps.mean_course() if finite else math.nan
    return lr, r, 1 - number(max(rows, key=lambda row: int(row["epoch"]))["val_acc"])
