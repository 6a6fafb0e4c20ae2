"""What reading a validation loss (`LearnedLR.validate`) does for networks that over-fit, and how often it is wrong.

Every second one of the lab's small real tables, three seeds: a small MLP on 60 % of at most 1,500 rows, 20 to 80 epochs, batches of
32. It is validated on 20 % after every epoch, and judged on the other 20 % by the plain loss. The rule was chosen on the tables in
between and on the recorded validation losses of results/. Its rivals: a cosine at the usual LR, the weights of the epoch with the
lowest validation loss, and a tenth of the LR after any three losses above the lowest, without asking for noise.

    python -m experiments.over_fitting
"""

import json
import math
import platform
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from statistics import fmean
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import OneCycleLR

from experiments import markdown, results
from mlrsnet import LearnedLR
from mlrsnet._engine import validation
from mlrsnet._engine.validation import Validation
from mlrsnet.card import versions
from mlrsnet.lab import records
from mlrsnet.lab.datasets import data_root, r_tables
from mlrsnet.lab.records import Record

RECORD = results.RESULTS / "over_fitting" / "cpu.json"
COSINE, DEFAULT, VALIDATED, PATIENT = "cosine, usual LR", "default", "default, validated", "default, patience only"
ARMS = (COSINE, DEFAULT, VALIDATED, PATIENT)
TABLES = tuple(r_tables.TABLES)[1::2]
SEEDS, BATCH, MOST_ROWS, EPOCHS, WIDTHS = 3, 32, 1500, (20, 40, 80), (32, 64, 128)
OPTIMIZERS: dict[str, tuple[float, Callable[..., Optimizer]]] = {
    "adamw": (1e-3, AdamW),
    "sgdm": (1e-2, lambda weights, lr: SGD(weights, lr=lr, momentum=0.9)),
    "sgd": (0.1, SGD),
}
"""The usual LR of each, and how it is made."""

CLEARLY = 0.05
LEAST_EVALUATIONS, LATE = 8, 0.85
"""Runs with fewer evaluations cannot alarm in time; an alarm in the last part of a run changes little."""

NO_NOISE = mock.patch.object(validation, "noise", return_value=0.0)


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
        if arm in (VALIDATED, PATIENT):
            lr.validate(val)
    return last, kept


def trainings() -> Iterator[tuple[str, str, int, int]]:
    """Table, optimizer, epochs and seed; optimizers and epochs take turns."""
    turn = count()
    for seed in range(SEEDS):
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
            with warnings.catch_warnings(), NO_NOISE if arm == PATIENT else nullcontext():
                warnings.simplefilter("ignore")  # some say that nothing is learned, which is so on some tables
                losses[arm] = [round(loss, 5) for loss in train(arm, name, optimizer, epochs, seed)]
        found.append({"table": name, "optimizer": optimizer, "epochs": epochs, "seed": seed, "losses": losses})
    where = {"versions": versions(), "device": platform.processor() or platform.machine(), "commit": records.commit()}
    return {**where, "trainings": found}


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


def first_alarm(losses: list[float]) -> int | None:
    """The evaluation after which the LR would have been shortened first."""
    seen = Validation()
    return next((place for place, loss in enumerate(losses) if seen.see(loss)), None)


def alarms() -> list[str]:
    """How often the rule would have spoken in recorded runs under decays and the default, and how often wrongly."""
    runs = [run for run in records.runs(results.RESULTS) if _counts(run)]
    lines = []
    for name, patch in (("validate(loss)", nullcontext()), ("patience only", NO_NOISE)):
        spoke = wrong = 0
        for run in runs:
            steps, losses = zip(*((one["step"], one["val_loss"]) for one in run.epochs), strict=True)
            with patch:
                place = first_alarm(list(losses))
            if place is not None and steps[place] < LATE * run.data["total_steps"]:
                spoke += 1
                wrong += losses[-1] < 0.99 * min(losses[: place + 1])
        lines.append([name, str(len(runs)), str(spoke), str(wrong)])
    return markdown.table(["", "runs", "shortened steps", "wrongly: the end was better than all before"], lines)


def _counts(run: Record) -> bool:
    """Whether a record is of a decay or of the default, ended, and was evaluated often."""
    schedule = run.spec["schedule_options"].get("schedule")
    is_decay = run.spec["schedule"] in ("cosine", "linear", "relative-rule") or schedule == "universal-2"
    evaluated = len(run.epochs) >= LEAST_EVALUATIONS and all("val_loss" in one for one in run.epochs)
    return is_decay and run.status == "finished" and evaluated


def main() -> None:
    """Measure and write."""
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(measure(), indent=1) + "\n")
    print("\n".join([*table(), "", *alarms()]))


if __name__ == "__main__":
    main()
