"""Marin's "Fantastic Pretraining Optimizers": eleven optimizers on language models of 130 million to 1.2 billion weights.

**Mapping.** r = sqrt(2 lr decay) for all of them, with the decay of each training. At the equilibrium of a decoupled decay the
length of an update cancels (`steps.at_equilibrium`), so this is what the law means for AdamW, NAdamW, Cautious AdamW and Adam-
mini (group `adam`: each optimizer has a constant of its own all the same). For those that take a sign (Lion), make an update
orthogonal (Muon, Scion) or precondition it (Kron, SOAP, Sophia, MARS) the update's correlation in time may be another one than
Adam's, which is a factor. So each optimizer's constant is free, and only the exponents and its distance from 1 are read.

**Assumed.** Steps: 20 tokens a weight and unit of `chinchilla`, 4,096 tokens a sequence. n: the size in the name, without
embeddings. Batch: sequences. All of them count as Adam's relatives in the law, as in
the library. Equilibrium: lr * decay * steps is in the record. Trainings with a decay of 0 have none, and are left out.

A cell is all trainings that agree in every setting but the LR, at least three LRs. A family is one size and number of tokens,
over all optimizers. `decays` gives cells in which the decay differs instead: if only lr * decay counts, as at equilibrium, both
kinds of cells have their best at the same r. The loss is the evaluation loss, in nats a token; more than 1 above the best
counts as 1.

**After the results were seen**: half of these cells have their best at an edge, so `tuned` has the best training of each
optimizer, size and number of tokens instead, whatever was changed to get there: 150 of them, to the grid's factor of 1.4 in r.
`followed` was added when Step Law's was seen to describe its curves better.

The one-line rule is Kaplan et al.'s LR (see `steplaw`) with a decay of 0.1, for Adam's kind only.
"""

import math
from collections.abc import Callable
from pathlib import Path

from lab.studies.sweeps import steps
from lab.studies.sweeps.cells import FEWEST, Cell, cell
from lab.studies.sweeps.read import Row, grouped, number, table
from lab.studies.sweeps.steplaw import kaplan

TOKENS, TOKENS_A_WEIGHT, START = 4096, 20, 0.02
Mapping = Callable[[Row], float]
WEIGHTS = {"130m": 130e6, "300m": 300e6, "520m": 520e6, "1.2b": 1.2e9}
LIKE_ADAM = ("adamw", "nadamw", "cautious", "mini")
NOT_SETTINGS = ("changed", "changed_to", "status", "loss", "run", "source")


def equilibrium(row: Row) -> float:
    """r by the equilibrium."""
    return steps.at_equilibrium(number(row["learning_rate"]), number(row["weight_decay"]))


def followed(row: Row) -> float:
    """r by the mean of the relative steps, as in `steplaw`: for Adam's kind, whose updates have a known length."""
    taken = _steps(row)
    shape = steps.cosine(number(row["warmup"]) / taken, 0.0)
    return steps.followed(number(row["learning_rate"]), number(row["weight_decay"]), int(taken), shape, START)


def optimizers(folder: Path, relative: Mapping = equilibrium) -> list[Cell]:
    """Cells in which the LR differs."""
    return _cells(folder, "learning_rate", relative)


def decays(folder: Path) -> list[Cell]:
    """Cells in which the weight decay differs."""
    return _cells(folder, "weight_decay", equilibrium)


def tuned(folder: Path) -> list[dict[str, float | str]]:
    """The best training of each optimizer, size and number of tokens."""
    rows = [row for row in _rows(folder) if math.isfinite(number(row["loss"]))]
    found = grouped(rows, lambda row: (row["optimizer"], row["size"], row["chinchilla"])).values()
    return [_tuned(min(some, key=lambda row: number(row["loss"]))) for some in found]


def _tuned(row: Row) -> dict[str, float | str]:
    facts = _cell([row], equilibrium)
    return {
        "optimizer": row["optimizer"],
        "family": facts.family,
        "lr": number(row["learning_rate"]),
        "decay": number(row["weight_decay"]),
        "r": equilibrium(row),
        "law": facts.law,
        "before": facts.before,
        "steps": facts.steps,
        "batch": facts.batch,
    }


def like_adam(cells: list[Cell]) -> list[Cell]:
    """Those of Adam's kind."""
    return [one for one in cells if one.group.removeprefix("Marin, ") in LIKE_ADAM]


def _cells(folder: Path, differs: str, relative: Mapping) -> list[Cell]:
    rows = _rows(folder)
    same = [key for key in rows[0] if key not in (differs, *NOT_SETTINGS)]
    found = grouped(rows, lambda row: tuple(row[key] for key in same))
    return [_cell(some, relative) for some in found.values() if len({row[differs] for row in some}) >= FEWEST]


def _rows(folder: Path) -> list[Row]:
    return [row for row in table(folder, "marin_optimizers") if number(row["weight_decay"]) > 0]


def _cell(rows: list[Row], relative: Mapping) -> Cell:
    first = rows[0]
    weights = WEIGHTS[first["size"]]
    return cell(
        [relative(row) for row in rows],
        [number(row["loss"]) for row in rows],
        name=f"{first['optimizer']}, {first['size']}, {first['chinchilla']}x, {first['train_batch_size']}",
        family=f"{first['size']} {first['chinchilla']}x",
        group=f"Marin, {first['optimizer']}",
        steps=_steps(first),
        size=weights,
        batch=number(first["train_batch_size"]),
        usual=steps.at_equilibrium(kaplan(weights), 0.1) if first["optimizer"] in LIKE_ADAM else math.nan,
    )


def _steps(row: Row) -> float:
    tokens = WEIGHTS[row["size"]] * TOKENS_A_WEIGHT * number(row["chinchilla"])
    return tokens / (number(row["train_batch_size"]) * TOKENS)
