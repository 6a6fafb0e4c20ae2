"""Step Law (arXiv 2503.04715): language models under a grid of peak LRs and batches, dense and mixtures of experts.

**Mapping.** AdamW with a weight decay of 0.1 at its equilibrium: r = sqrt(2 lr 0.1), lr the peak. A check follows the length of the
weights instead, from a start of 0.02, under the source's own schedule (`followed`), and has r by its mean.

**Assumed.** The decay of 0.1, beta_1 of 0.9, 2,000 steps of warm-up and the cosine to an LR of 1e-5 stand in the paper, not in the
table. If the decay is another one, all r change by one factor, and no exponent changes. Equilibrium needs lr * decay * steps to be
well above 1; the record says what it is. n: the weights without embeddings, all experts for a mixture (the law counts what is
trained); the record says what the share in use gives. Batch: sequences of 2,048 tokens.

A cell is one network, number of tokens and batch. A family is one network and number of tokens: 17 dense ones, 4 mixtures.
The loss is the source's smoothed training loss, in nats a token; more than 1 above the best counts as 1.

The one-line rule is Kaplan et al.'s (2020): lr = 0.003239 - 0.0001395 log n.
"""

import math
from collections.abc import Callable
from pathlib import Path

from lab.studies.sweeps import steps
from lab.studies.sweeps.cells import FEWEST, Cell, cell
from lab.studies.sweeps.read import Row, grouped, number, table

DECAY, WARMUP, END, START = 0.1, 2000, 1e-5, 0.02
Mapping = Callable[[float, int], float]
NETWORK = ("params", "width", "layers", "expert_width", "shared_expert_width", "topk", "gg")


def equilibrium(lr: float, taken: int) -> float:
    """r by the equilibrium, whatever the number of steps."""
    return steps.at_equilibrium(lr, DECAY)


def followed(lr: float, taken: int, start: float = START) -> float:
    """r by the mean of the relative steps under the source's own schedule."""
    return steps.followed(lr, DECAY, taken, steps.cosine(min(0.5, WARMUP / taken), min(1.0, END / lr)), start)


def dense(folder: Path, relative: Mapping = equilibrium) -> list[Cell]:
    """Of the dense networks."""
    return _cells(table(folder, "steplaw_dense"), "Step Law, dense", relative, "params")


def mixtures(folder: Path, relative: Mapping = equilibrium, size: str = "params") -> list[Cell]:
    """Of the mixtures of experts; `size`: the column that is n."""
    return _cells(table(folder, "steplaw_moe"), "Step Law, experts", relative, size)


def _cells(rows: list[Row], group: str, relative: Mapping, size: str) -> list[Cell]:
    found = grouped(rows, lambda row: (*_family(row), row["batch_sequences"]))
    return [_cell(some, group, relative, size) for some in found.values() if len(some) >= FEWEST]


def _family(row: Row) -> tuple[str, ...]:
    return (*(row.get(key, "") for key in NETWORK), row["tokens"])


def _cell(rows: list[Row], group: str, relative: Mapping, size: str) -> Cell:
    first, taken = rows[0], int(rows[0]["steps"])
    return cell(
        [relative(number(row["lr"]), taken) for row in rows],
        [number(row["loss"]) for row in rows],
        name=f"{number(first['params']) / 1e6:.0f}M, {number(first['tokens']) / 1e9:g}B, {first['batch_sequences']}",
        family=" ".join(filter(None, _family(first))),
        group=group,
        steps=float(taken),
        size=number(first[size]),
        batch=number(first["batch_sequences"]),
        usual=relative(kaplan(number(first["params"])), taken),
    )


def kaplan(size: float) -> float:
    """An LR by the number of weights, without embeddings.

    >>> round(kaplan(1e9), 6)
    0.000348
    """
    return 0.003239 - 0.0001395 * math.log(size)
