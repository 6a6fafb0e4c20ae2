"""Adapters: Gemma-3-1B on MetaMathQA (rank, batch and number of examples differ), and best LRs of AdamW on five models; checks.

**Mapping.** The library measures an adapter A (rank x in) and B (out x rank) as any other matrices. A has torch's length, and
B, which begins at 0, counts as if it had: |A|^2 = rank / 3 and k |B|^2 = rank / 3. A step of Adam has k |D|^2 = rank in for A
and rank^2 for B. So

    r = lr sqrt(1.5 mean of (in + rank))        over the adapted layers; c(m) cancels

**Assumed.** All linear layers are adapted, alpha = rank, and the sizes of the models below, from memory of their
configurations. B stays shorter than torch's initialisation. n: the weights of the adapters. The law counts no depth, as the library
does for adapters. Gemma: one epoch, so steps = examples / batch.

A cell is one method, rank, batch and number of examples; its loss is the share of wrong answers; more than 1 above the best
cannot be. A family is a cell. Cells from a table have twelve LRs; those off a figure three or four, which have an inner best
only if it is the middle one. The one-line rule is an LR of 2e-4. Of the second table only the best LRs are known, so it has no
regrets.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from lab.studies.sweeps import steps
from lab.studies.sweeps.cells import FEWEST, Cell, cell
from lab.studies.sweeps.read import Row, grouped, number, table

USUAL_LR = 2e-4
TRAINED_STEPS, TRAINED_BATCH = 9_000, 16


@dataclass(frozen=True)
class Model:
    """A transformer's linear layers: (in, out) of each in a block, and the number of blocks."""

    layers: tuple[tuple[int, int], ...]
    blocks: int

    def relative(self, lr: float, rank: int) -> float:
        """r of an LR.

        >>> round(Model(((100, 100),), 1).relative(0.001, 50), 4)
        0.015
        """
        ins = [size + rank for size, _ in self.layers]
        return lr * math.sqrt(1.5 * sum(ins) / len(ins))

    def weights(self, rank: int) -> int:
        """n: of all adapters."""
        return self.blocks * sum(rank * (size + out) for size, out in self.layers)


def transformer(width: int, queries: int, keys: int, hidden: int, blocks: int) -> Model:
    """Queries, keys, values, their way out, and a gated hidden layer."""
    attention = ((width, queries), (width, keys), (width, keys), (queries, width))
    return Model((*attention, (width, hidden), (width, hidden), (hidden, width)), blocks)


GEMMA = transformer(1152, 1024, 256, 6912, 26)
MODELS = {
    "OLMo-2-1B": transformer(2048, 2048, 2048, 8192, 16),
    "Llama-3.2-1B": transformer(2048, 2048, 512, 8192, 16),
    "Qwen2.5-1.5B": transformer(1536, 1536, 256, 8960, 28),
    "Qwen3-0.6B": transformer(1024, 2048, 1024, 3072, 28),
    "Meta-Llama-3-8B": transformer(4096, 4096, 1024, 14336, 32),
}


def gemma(folder: Path) -> list[Cell]:
    """All methods on Gemma-3-1B."""
    rows = table(folder, "lora_gemma3_metamath")
    found = grouped(
        rows, lambda row: tuple(row[key] for key in ("method", "rank", "batch_size", "train_samples", "read"))
    )
    return [_cell(some) for some in found.values() if len(some) >= FEWEST]


def others(folder: Path) -> list[dict[str, float | str]]:
    """AdamW's best LR on five models, as r, beside the law's and that of the law before."""
    rows = [row for row in table(folder, "lora_best_lr") if row["optimizer"] == "AdamW"]
    return [_other(row) for row in rows]


def _other(row: Row) -> dict[str, float | str]:
    model, rank, lr = MODELS[row["model"]], int(row["rank"]), number(row["best_lr"])
    size = model.weights(rank)
    return {
        "name": f"{row['model']}, {row['dataset']}, rank {rank}",
        "lr": lr,
        "r": model.relative(lr, rank) / steps.mean_course(),
        "law": steps.of_law(TRAINED_STEPS, size, TRAINED_BATCH, depth=1, has_norms=False),
        "before": steps.of_law_before(TRAINED_STEPS, size),
    }


def _cell(rows: list[Row]) -> Cell:
    first = rows[0]
    rank, batch, examples = int(first["rank"]), number(first["batch_size"]), number(first["train_samples"])
    return cell(
        [GEMMA.relative(number(row["lr"]), rank) for row in rows],
        [1 - number(row["accuracy"]) / 100 for row in rows],
        name=f"{first['method']}, rank {rank}, batch {batch:.0f}, {examples:.0f} examples, {first['read']}",
        family=f"{first['method']} {rank} {batch} {examples} {first['read']}",
        group=f"Adapters, {first['method']}",
        steps=examples / batch,
        size=GEMMA.weights(rank),
        batch=batch,
        depth=1,
        has_norms=False,
        usual=GEMMA.relative(USUAL_LR, rank),
    )
