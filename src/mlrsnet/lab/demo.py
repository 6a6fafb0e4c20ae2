"""`mlrsnet demo`: a small CNN on real digits under six schedules; a table, a picture and a record.

The hand-designed schedules first have their initial LR chosen from a grid on validation data, with a seed of its own;
the learned one has nothing to choose. Test data only enters what is reported. Everything runs on the CPU, so that the
same command gives the same numbers on the same machine.
"""

import json
import math
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import LRScheduler

from mlrsnet.card import Card, versions
from mlrsnet.lab.models.small_cnn import small_cnn
from mlrsnet.lab.schedules import HAND_DESIGNED
from mlrsnet.lab.tasks import digits
from mlrsnet.lab.trainer import Curves, train
from mlrsnet.nets import LSTMNet
from mlrsnet.schedule import Schedule
from mlrsnet.scheduler import LearnedLR
from mlrsnet.storage import write_atomically

LR_GRID = (0.05, 0.1, 0.2, 0.5, 1.0)
WEIGHT_DECAY, BATCH_SIZE = 5e-4, 64
TUNING_SEED = 1000
LEARNED = "MLR-SNet"
UNTRAINED = "untrained network"


@dataclass(frozen=True)
class Run:
    """One training of the demo; `initial_lr` is None where the schedule finds its own range."""

    schedule: str
    initial_lr: float | None
    seed: int
    curves: Curves


def untrained_schedule(seed: int) -> Schedule:
    """The paper's network as it is initialised: a stand-in until a schedule is learned."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Schedule(LSTMNet(), Card(name="untrained", description=UNTRAINED))


def num_trainings(seeds: int) -> int:
    """How many trainings `run_demo` makes, the choice of initial LRs included."""
    return len(HAND_DESIGNED) * len(LR_GRID) + seeds * (len(HAND_DESIGNED) + 1)


def run_demo(
    epochs: int,
    seeds: int,
    schedule: Schedule | None,
    on_epoch: Callable[[], None],
    on_run: Callable[[list[Run]], None],
) -> list[Run]:
    """Train every schedule with every seed; the same seed gives the same initialisation and the same order of batches."""
    data, runs = digits.load(), []
    best = {name: choose_lr(name, data, epochs, on_epoch) for name in HAND_DESIGNED}
    for seed in range(seeds):
        for name in (*HAND_DESIGNED, LEARNED):
            learned = None if name in HAND_DESIGNED else schedule or untrained_schedule(seed)
            curves = train_once(name, best.get(name), learned, data, epochs, seed, on_epoch)
            runs.append(Run(name, best.get(name), seed, curves))
            on_run(runs)
    return runs


def choose_lr(name: str, data: digits.Digits, epochs: int, on_epoch: Callable[[], None]) -> float:
    """The initial LR of the grid with the lowest validation loss at the end."""
    losses = {lr: train_once(name, lr, None, data, epochs, TUNING_SEED, on_epoch).val_loss for lr in LR_GRID}
    return min(losses, key=lambda lr: losses[lr] if math.isfinite(losses[lr]) else math.inf)


def train_once(
    name: str,
    lr: float | None,
    learned: Schedule | None,
    data: digits.Digits,
    epochs: int,
    seed: int,
    on_epoch: Callable[[], None],
) -> Curves:
    """One training from a seed, under a hand-designed schedule or the learned one."""
    total_steps = epochs * (digits.NUM_TRAIN // BATCH_SIZE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = small_cnn()
    optimizer = SGD(model.parameters(), lr=lr or 1.0, weight_decay=WEIGHT_DECAY)
    scheduler: LRScheduler
    if learned is not None:
        scheduler = LearnedLR(optimizer, learned, total_steps=total_steps, num_classes=digits.NUM_CLASSES)
    else:
        scheduler = HAND_DESIGNED[name](optimizer, total_steps, epochs)
    return train(model, data, optimizer, scheduler, epochs=epochs, batch_size=BATCH_SIZE, seed=seed, on_epoch=on_epoch)


def summarise(runs: list[Run], schedule: Schedule | None) -> list[dict[str, Any]]:
    """One row a schedule: last-epoch test accuracy and last-epoch training loss over the seeds."""
    rows = []
    for name in dict.fromkeys(run.schedule for run in runs):
        curves = [run.curves for run in runs if run.schedule == name]
        initial_lr = next(run.initial_lr for run in runs if run.schedule == name)
        last = [c.test_accuracy[-1] for c in curves]
        steps = len(curves[0].loss) // len(curves[0].test_accuracy)
        rows.append(
            {
                "schedule": name,
                "seeds": len(last),
                "test_accuracy": mean(last),
                "test_accuracy_std": stdev(last) if len(last) > 1 else 0.0,
                "train_loss": mean(mean(c.loss[-steps:]) for c in curves),
                "initial_lr": initial_lr,
                "note": ""
                if name != LEARNED
                else UNTRAINED
                if schedule is None
                else f"{schedule.card.name}, transferred",
            }
        )
    return rows


def write_record(path: Path, runs: list[Run], schedule: Schedule | None, epochs: int) -> None:
    """What was run, on what, and everything it gave; written after every training."""
    record = {
        "task": "scikit-learn digits, small CNN, SGD, CPU",
        "settings": {"epochs": epochs, "lr_grid": LR_GRID, "weight_decay": WEIGHT_DECAY, "batch_size": BATCH_SIZE},
        "versions": versions(),
        "machine": {"system": platform.platform(), "processor": platform.processor() or platform.machine()},
        "rows": summarise(runs, schedule),
        "runs": [
            {"schedule": run.schedule, "initial_lr": run.initial_lr, "seed": run.seed, **run.curves.to_dict()}
            for run in runs
        ],
    }
    write_atomically(path, json.dumps(record).encode())


def draw(path: Path, runs: list[Run], schedule: Schedule | None) -> None:
    """Training loss, test accuracy and LR over the epochs, the mean over the seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4.4), layout="constrained")
    loss_axes, accuracy_axes, lr_axes = figure.subplots(1, 3)
    for name in dict.fromkeys(run.schedule for run in runs):
        curves = [run.curves for run in runs if run.schedule == name]
        epochs = len(curves[0].test_accuracy)
        style = {
            "label": name,
            "linewidth": 2.4 if name == LEARNED else 1.3,
            "color": "black" if name == LEARNED else None,
        }
        loss = torch.tensor([c.loss for c in curves]).mean(0).view(epochs, -1).mean(1)
        lr = torch.tensor([c.lr for c in curves]).mean(0)
        loss_axes.plot(range(1, epochs + 1), loss, **style)
        accuracy_axes.plot(range(1, epochs + 1), torch.tensor([c.test_accuracy for c in curves]).mean(0), **style)
        lr_axes.plot(torch.arange(len(lr)) * epochs / len(lr), lr, **style)
    loss_axes.set(xlabel="epoch", ylabel="training loss", yscale="log")
    accuracy_axes.set(xlabel="epoch", ylabel="test accuracy (%)")
    lr_axes.set(xlabel="epoch", ylabel="LR", yscale="log", ylim=(1e-5, None))
    for axes in (loss_axes, accuracy_axes, lr_axes):
        axes.grid(alpha=0.3)
    accuracy_axes.legend(frameon=False)
    note = summarise(runs, schedule)[-1]["note"]
    seeds = len({run.seed for run in runs})
    figure.suptitle(f"Small CNN on digits, SGD, mean of {seeds} seeds.  {LEARNED}: {note}")
    figure.savefig(path, dpi=130)
