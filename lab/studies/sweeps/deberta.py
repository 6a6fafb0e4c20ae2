"""2,048 fine-tunings of DeBERTa-base and DeBERTa-v3-base on MultiNLI: at which size of step does a trained network break?

**Mapping.** r = lr / 0.04: the weights begin, and stay, near the length that pre-training gave them, since lr * decay * steps
is below 0.1 even at the largest LRs. Adam moves each weight by about c(m) lr where gradients are noise.

**Assumed.** A root mean square of 0.04 for both networks' matrices; if it is another one, all r change by one factor, and what
is said of LRs stays. AdamW with beta_1 0.9 and a linear fall after `warmup_steps`. n: 139 and 184 million weights, embeddings
included, since they are trained. T: `total_model_steps`.

**Failed**: the accuracy at the end is below 0.6. Guessing gives 0.35, the best is about 0.9; the record also counts 0.5 and 0.7.

`trainings` has each training by itself: whether it fails, and its accuracy. `cells` groups the random search into 24: model,
number of epochs, batch in three parts of equal width; the LRs in twelve equal parts of their logarithm, the loss of a part the
median share of errors at the end. The settings of both models are the same, so a bootstrap draws settings. A family is a cell's
epochs and batch. The one-line rule is an LR of 2e-5, what people begin with.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from lab.studies.sweeps import steps
from lab.studies.sweeps.cells import Cell, cell
from lab.studies.sweeps.read import Row, grouped, number, table

LENGTH, USUAL_LR, FAILED = 0.04, 2e-5, 0.6
WEIGHTS = {"deberta-base": 139e6, "deberta-v3-base": 184e6}
PARTS = np.geomspace(1e-6, 1e-3, 13)
BATCHES = (16, 32, 48, 65)


@dataclass(frozen=True)
class Tuned:
    """One fine-tuning."""

    model: str
    setting: int
    lr: float
    steps: float
    batch: float
    warmup: float
    accuracy: float

    @property
    def r(self) -> float:
        """Its relative step."""
        return steps.from_length(self.lr, LENGTH)

    @property
    def law(self) -> float:
        """The r of the default for a new network of this size."""
        return steps.of_law(self.steps, WEIGHTS[self.model], self.batch)

    @property
    def kept(self) -> float:
        """The r of the default, which keeps a trained network near where it is."""
        return steps.of_law(self.steps, WEIGHTS[self.model], self.batch, is_trained=True)

    @property
    def before(self) -> float:
        """The same of the law before."""
        return steps.of_law_before(self.steps, WEIGHTS[self.model], is_trained=True)

    def failed(self, below: float = FAILED) -> bool:
        """Whether it ends below."""
        return not self.accuracy >= below


def trainings(folder: Path) -> list[Tuned]:
    """All of them."""
    return [_tuned(row) for row in table(folder, "opda_deberta_mnli")]


def cells(folder: Path) -> list[Cell]:
    """24 cells."""
    found = grouped(table(folder, "opda_deberta_mnli"), _key)
    return [_cell(key, [_tuned(row) for row in rows]) for key, rows in sorted(found.items())]


def _tuned(row: Row) -> Tuned:
    taken = number(row["total_model_steps"])
    return Tuned(
        row["model"],
        int(row["iteration"]),
        number(row["learning_rate"]),
        taken,
        number(row["train_batch_size"]),
        number(row["warmup_steps"]) / taken,
        number(row["final_matched"]),
    )


def _key(row: Row) -> tuple[str, ...]:
    part = int(np.searchsorted(BATCHES, number(row["train_batch_size"]), side="right"))
    return row["model"], row["num_train_epochs"], str(BATCHES[part - 1])


def _cell(key: tuple[str, ...], found: list[Tuned]) -> Cell:
    model, epochs, batch = key
    parts = [[one for one in found if low <= one.lr < high] for low, high in pairwise(PARTS)]
    middles = np.sqrt(PARTS[1:] * PARTS[:-1])
    some = [(float(lr), part) for lr, part in zip(middles, parts, strict=True) if part]
    return cell(
        [steps.from_length(lr, LENGTH) for lr, _ in some],
        [1 - median(one.accuracy for one in part) for _, part in some],
        name=f"{model}, {epochs} epochs, batch from {batch}",
        family=f"{epochs} {batch}",
        group=f"DeBERTa, {model}",
        steps=median(one.steps for one in found),
        size=WEIGHTS[model],
        batch=median(one.batch for one in found),
        is_trained=True,
        usual=steps.from_length(USUAL_LR, LENGTH),
    )
