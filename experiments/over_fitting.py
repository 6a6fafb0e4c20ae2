"""What reading a validation loss (`LearnedLR.validate`) does for networks that over-fit.

Every second one of the lab's small real tables, split in three ways: a small MLP on 60 % of at most 1,500 rows, 20 to 80 epochs,
batches of 32. It is validated on 20 % after every epoch, and judged on the other 20 % by the plain loss. The rule was chosen on the
tables in between; one before it, which waited for a clear rise, had been tried on these, split otherwise. Rivals: a cosine at the
usual LR, and the weights of the epoch with the lowest validation loss.

    python -m experiments.over_fitting
"""

import json
import math
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import OneCycleLR

from experiments import markdown, results
from lab.studies.rows import r_tables
from mlrsnet import LearnedLR
from mlrsnet_lab.datasets import data_root

RECORD = results.RESULTS / "over_fitting" / "cpu.json"
COSINE, DEFAULT, VALIDATED = "cosine, usual LR", "default", "default, validated"
ARMS = (COSINE, DEFAULT, VALIDATED)
TABLES = tuple(r_tables.TABLES)[1::2]
SEEDS, BATCH, MOST_ROWS, EPOCHS, WIDTHS = (3, 4, 5), 32, 1500, (20, 40, 80), (32, 64, 128)
OPTIMIZERS: dict[str, tuple[float, Callable[..., Optimizer]]] = {
    "adamw": (1e-3, AdamW),
    "sgdm": (1e-2, lambda weights, lr: SGD(weights, lr=lr, momentum=0.9)),
    "sgd": (0.1, SGD),
}
"""The usual LR of each, and how it is made."""

CLEARLY = 0.05


class Table:
    """A real table in three parts, and the loss that judges it."""

    def __init__(self, name: str, seed: int) -> None:
        data, self.has_classes = r_tables.load(name, data_root(None)), r_tables.TABLES[name].has_classes
        order = torch.randperm(len(data.inputs), generator=torch.Generator().manual_seed(seed))[:MOST_ROWS]
        x, y = data.inputs.flatten(1).float()[order], data.targets.flatten()[order]
        self.outputs = data.num_classes if self.has_classes else 1
        first, second = (round(share * len(x)) for share in (0.6, 0.8))
        self.train, self.val, self.test = ((x[part], y[part]) for part in _parts(first, second))

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy, or the squared error of standardised numbers."""
        return cross_entropy(answers, targets) if self.has_classes else mse_loss(answers[:, 0], targets.float())


def _parts(first: int, second: int) -> tuple[slice, slice, slice]:
    return slice(first), slice(first, second), slice(second, None)


def train(arm: str, name: str, optimizer: str, epochs: int, seed: int) -> tuple[float, float]:
    """The test loss at the end, and that of the epoch with the lowest validation loss."""
    table = Table(name, seed)
    torch.manual_seed(seed)
    (x, y), width = table.train, WIDTHS[seed % len(WIDTHS)]
    hidden = (nn.Linear(x.shape[1], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    model = nn.Sequential(*hidden, nn.Linear(width, table.outputs))
    usual, make = OPTIMIZERS[optimizer]
    batches = len(x) // BATCH
    made = make(model.parameters(), lr=usual)
    lr: Any = (
        OneCycleLR(made, usual, total_steps=epochs * batches, pct_start=0.05, cycle_momentum=False)
        if arm == COSINE
        else LearnedLR(made, total_steps=epochs * batches)
    )
    lowest = kept = last = math.inf
    for _ in range(epochs):
        for rows in torch.randperm(len(x))[: batches * BATCH].split(BATCH):
            loss = table.loss(model(x[rows]), y[rows])
            made.zero_grad()
            loss.backward()
            if arm != COSINE:
                lr.step(loss)
            made.step()
            if arm == COSINE:
                lr.step()
        with torch.no_grad():
            val, last = (float(table.loss(model(inputs), targets)) for inputs, targets in (table.val, table.test))
        lowest, kept = (val, last) if val < lowest else (lowest, kept)
        if arm == VALIDATED:
            lr.validate(val)
    return last, kept


def trainings() -> Iterator[tuple[str, str, int, int]]:
    """Table, optimizer, epochs and seed; optimizers and epochs take turns."""
    turn = count()
    for seed in SEEDS:
        for name in TABLES:
            number = next(turn)
            yield name, tuple(OPTIMIZERS)[number % 3], EPOCHS[number // 3 % 3], seed


def measure() -> dict[str, Any]:
    """Every arm on the same trainings."""
    torch.set_num_threads(1)
    found = []
    for name, optimizer, epochs, seed in trainings():
        losses = {}
        for arm in ARMS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some say that nothing is learned, which is so on some tables
                losses[arm] = [round(loss, 5) for loss in train(arm, name, optimizer, epochs, seed)]
        found.append({"table": name, "optimizer": optimizer, "epochs": epochs, "seed": seed, "losses": losses})
    return {**results.here(), "trainings": found}


def table() -> list[str]:
    """Each arm against the cosine at its last epoch, over all trainings; from the record."""
    runs = json.loads(RECORD.read_text())["trainings"]
    lines = []
    for place, what in enumerate(("last epoch", "epoch with the lowest validation loss")):
        for arm in ARMS:
            logs = [math.log(run["losses"][arm][place] / run["losses"][COSINE][0]) for run in runs]
            better, worse = sum(log < -CLEARLY for log in logs), sum(log > CLEARLY for log in logs)
            shares = [f"{100 * number / len(logs):.0f}%" for number in (better, worse)]
            lines.append([arm, what, f"{math.exp(fmean(logs)):.3f}", *shares, f"{math.exp(max(logs)):.2f}"])
    heads = ["", "weights of the", "test loss / cosine's", "clearly better", "clearly worse", "worst"]
    return [*markdown.table(heads, lines), "", f"{len(runs)} trainings; geometric mean; clearly: by 5 %."]


def main() -> None:
    """Measure and write."""
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(measure(), indent=1) + "\n")
    print("\n".join(table()))


if __name__ == "__main__":
    main()
