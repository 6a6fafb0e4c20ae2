"""Sealed judge: language models under AdamW, with several schedules and lengths (fabian-sp/lr-scheduling).

Written before the table was opened, from its description, after the law was final. The description says which LRs were best at
124 million weights and 50,000 steps; that was known. Nothing of the law follows from what comes out.

**Mapping.** As in `steplaw`, followed: AdamW with a decay of 0.1, the length of the weights computed from a root mean square of
0.02, under the training's own schedule, and

    r = mean(lr_t / |w_t|) / mean(course)

Schedules: a straight warm-up of `warmup_steps`; then a cosine to zero or to a tenth; or a plateau and a fall over the last
`cooldown_fraction`, straight (1 - x) or with a root (1 - sqrt(x)). A check reads r by the equilibrium, sqrt(2 lr 0.1), lr the
peak.

**Assumed.** The decay is 0.1 in all of them, beta_1 0.9. n: `params`, as it stands there. T: `steps`, also where a training was
continued from a shared plateau. B: the product of `batch_size`, `acc_steps` and `world_size`, in sequences of 512 tokens: a
quarter and an eighth of the tokens of the other sources' sequences. The law takes sequences as they are, so this tests that
too. Norms, at least 12 matrices, Adam's kind.

**Left out**: schedules in two stages, cosines whose end was not recorded, and trainings whose `last_step` is below 99 % of
`steps`. A loss that is empty counts as diverged.

A cell is all trainings that agree in everything but the LR, at least three LRs. A family is a network and a number of steps,
since its trainings share plateaus. The loss is the last validation loss, in nats a token; more than 1 above the best counts as
1. LRs without a fall (`cooldown_fraction` 0) are judged apart: the law is about trainings that end with short steps.

Rules: the law, the law before, a relative size of 0.087, and Kaplan's LR (see `steplaw`). The verdict is by `followed`: the law
stands if its mean regret is below the law before's and the usual LR's, and the mean of best / law is between 1/2 and 2.

**After it was opened**: `decay_type` says nothing under a cosine, but stands there, and splits one sweep in two. One half has a
training that diverged beside one of half the law's size, and nothing between. `joined` takes both halves as one.
"""

import math
from collections.abc import Callable
from pathlib import Path

from lab.studies.sweeps import steps
from lab.studies.sweeps.cells import FEWEST, Cell, cell
from lab.studies.sweeps.read import Row, grouped, number, table
from lab.studies.sweeps.steplaw import DECAY, START, kaplan

ENDED = 0.99
SAME = (
    "dataset",
    "model",
    "params",
    "layers",
    "width",
    "schedule",
    "decay_type",
    "cooldown_fraction",
    "cos_final_lr",
    "warmup_steps",
    "steps",
    "batch_size",
    "acc_steps",
    "world_size",
    "sequence_length",
    "grad_clip",
)
"""Settings that trainings of a cell share."""

TENTH, NO_FALL = -1.0, 0.0
"""What `cos_final_lr` says of a cosine to a tenth of its peak, and `cooldown_fraction` of a constant LR."""

Mapping = Callable[[Row, float], float]


def followed(row: Row, lr: float) -> float:
    """r by the mean of the relative steps under the training's own schedule; the row gives everything but the LR."""
    taken = number(row["steps"])
    warmup = number(row["warmup_steps"]) / taken
    if row["schedule"] == "cos":
        shape = steps.cosine(warmup, 0.1 if number(row["cos_final_lr"]) == TENTH else 0.0)
    else:
        shape = steps.plateau(warmup, number(row["cooldown_fraction"]), row["decay_type"] == "sqrt")
    return steps.followed(lr, DECAY, int(taken), shape, START)


def equilibrium(row: Row, lr: float) -> float:
    """r by the equilibrium."""
    return steps.at_equilibrium(lr, DECAY)


def cells(folder: Path, relative: Mapping = followed, falls: bool = True, joined: bool = False) -> list[Cell]:
    """Those whose LR falls at the end, or the others. joined: whether `decay_type` counts under a plateau only."""
    rows = [row for row in table(folder, "schaipp_llm_schedules") if _is_known(row) and _falls(row) == falls]
    found = grouped([_without_type(row) for row in rows] if joined else rows, lambda row: tuple(map(row.get, SAME)))
    return [_cell(some, relative) for some in found.values() if len({row["lr"] for row in some}) >= FEWEST]


def _without_type(row: Row) -> Row:
    return {**row, "decay_type": ""} if row["schedule"] == "cos" else row


def _is_known(row: Row) -> bool:
    has_schedule = row["schedule"] == "wsd" or (row["schedule"] == "cos" and row["cos_final_lr"] != "")
    return has_schedule and number(row["last_step"]) >= ENDED * number(row["steps"])


def _falls(row: Row) -> bool:
    return row["schedule"] == "cos" or number(row["cooldown_fraction"]) > NO_FALL


def _cell(rows: list[Row], relative: Mapping) -> Cell:
    first = rows[0]
    size, taken = number(first["params"]), number(first["steps"])
    return cell(
        [relative(first, number(row["lr"])) for row in rows],
        [number(row["final_val_loss"]) for row in rows],
        name=f"{first['schedule']} {first['cooldown_fraction'] or first['cos_final_lr']} {first['decay_type']}, "
        f"{size / 1e6:.0f}M, {taken:.0f} steps",
        family=f"{first['model']} {first['params']} {first['layers']} {first['steps']}",
        group=f"Schaipp, {first['schedule']}",
        steps=taken,
        size=size,
        batch=math.prod(number(first[key]) for key in ("batch_size", "acc_steps", "world_size")),
        usual=relative(first, kaplan(size)),
    )
