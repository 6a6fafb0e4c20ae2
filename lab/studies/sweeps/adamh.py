"""Marin's mixtures of experts under AdamH: its LR is the relative step itself.

**Mapping.** A step of AdamH has exactly `adamh_lr` times the length of the matrix, after which the matrix is put back to its
length. A step of the default has r c(beta_1) times the length, so r = adamh_lr / c(0.9062) = 4.51 adamh_lr. There is no decay,
and nothing about equilibria is assumed.

**Assumed.** beta_1 of 0.9062 and a straight fall after 10 % of warm-up, from the source's code. How many weights a width stands
for is not in the table, so each width has a free constant, and only the exponent of the steps is read, at a fixed batch in each
width. The three smaller widths have three batches, so size and batch cannot be told apart here.

A cell is one width and ratio of tokens; only trainings that finished count; a setting that was run twice counts with its mean. A
family is a cell. The loss is in bits a byte; more than 1 above the best counts as 1. There is no one-line rule.

`dense_reference`: AdamH tuned for a dense network of 130 million weights; the one number where the constant can be seen.
"""

import math
from pathlib import Path

from lab.studies.sweeps import steps
from lab.studies.sweeps.cells import FEWEST, Cell, cell
from lab.studies.sweeps.read import Row, grouped, number, table

BETA_1, TOKENS = 0.9062, 4096
CARRIES = math.sqrt((1 - BETA_1) / (1 + BETA_1))


def experts(folder: Path) -> list[Cell]:
    """One cell for each width and ratio of tokens."""
    rows = [row for row in table(folder, "marin_moe_adamh") if row["state"] == "finished"]
    found = grouped(rows, lambda row: (row["width"], row["token_ratio"]))
    return [_cell(some) for some in found.values() if len({row["adamh_lr"] for row in some}) >= FEWEST]


def dense_reference() -> dict[str, float]:
    """r of the dense network, and of the law: 130 million weights, 2.5 billion tokens, batches of 64 sequences, LR 0.0063."""
    taken = 2.5e9 / (64 * TOKENS)
    return {
        "r": 0.0063 / CARRIES,
        "law": steps.of_law(taken, 130e6, 64),
        "before": steps.of_law_before(taken, 130e6),
        "steps": taken,
        "size": 130e6,
        "batch": 64.0,
    }


def _cell(rows: list[Row]) -> Cell:
    first = rows[0]
    return cell(
        [number(row["adamh_lr"]) / CARRIES for row in rows],
        [number(row["c4_bpb"]) for row in rows],
        name=f"width {first['width']}, {number(first['tokens']) / 1e9:.1f}B, {first['batch_sequences']}",
        family=f"{first['width']} {first['token_ratio']}",
        group=f"AdamH, width {first['width']}",
        steps=number(first["steps"]),
        size=1.0,
        knows_size=False,
        batch=number(first["batch_sequences"]),
    )
