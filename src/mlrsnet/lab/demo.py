"""`mlrsnet demo`: learn a schedule on one half of the digits, transfer it to the other, compare.

1. Learn: Algorithm 1 on the digits 0 to 4.
2. Transfer: a small CNN learns the digits 5 to 9 under the learned schedule, with nothing to choose.
3. Compare: the same under hand-designed schedules, whose initial LR is first chosen from a grid on validation data, with
   seeds of their own.

Test data only enters what is reported. The same command gives the same numbers on the same machine.
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

from mlrsnet.card import versions
from mlrsnet.lab.learn import Learner, Settings
from mlrsnet.lab.models.small_cnn import small_cnn
from mlrsnet.lab.schedules import HAND_DESIGNED
from mlrsnet.lab.tasks import digits
from mlrsnet.lab.trainer import Curves, by_hand, by_schedule, evaluate, train_epoch
from mlrsnet.schedule import Schedule
from mlrsnet.scheduler import LearnedLR
from mlrsnet.storage import write_atomically

LEARN_ON, TRANSFER_TO = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)
LR_GRID = (0.1, 0.3, 1.0, 3.0, 10.0)
WEIGHT_DECAY, BATCH_SIZE = 5e-4, 64
TUNING_SEEDS = (1000, 1001, 1002)
LEARNED = "MLR-SNet"


@dataclass(frozen=True)
class Run:
    """One training of the demo; `initial_lr` is None where the schedule finds its own range."""

    schedule: str
    initial_lr: float | None
    seed: int
    curves: Curves


def learn(epochs: int) -> Learner:
    """Step 1, ready to run."""
    return Learner(Settings(classes=LEARN_ON, epochs=epochs, batch_size=BATCH_SIZE, name="digits 0-4"))


def num_trainings(seeds: int) -> int:
    """How many trainings `compare` makes, the choice of initial LRs included."""
    return len(HAND_DESIGNED) * len(LR_GRID) * len(TUNING_SEEDS) + seeds * (len(HAND_DESIGNED) + 1)


def compare(
    epochs: int,
    seeds: int,
    schedule: Schedule,
    device: str,
    on_epoch: Callable[[], None],
    on_run: Callable[[list[Run]], None],
) -> list[Run]:
    """Steps 2 and 3. The same seed gives the same initialisation and the same order of batches."""
    data, runs = digits.load(TRANSFER_TO, device), []
    best = {name: choose_lr(name, data, epochs, on_epoch) for name in HAND_DESIGNED}
    for seed in range(seeds):
        for name in (*HAND_DESIGNED, LEARNED):
            learned = None if name in HAND_DESIGNED else schedule
            runs.append(
                Run(name, best.get(name), seed, train_once(name, best.get(name), learned, data, epochs, seed, on_epoch))
            )
            on_run(runs)
    return runs


def choose_lr(name: str, data: digits.Digits, epochs: int, on_epoch: Callable[[], None]) -> float:
    """The initial LR of the grid with the lowest validation loss at the end, the mean over the tuning seeds."""

    def loss(lr: float) -> float:
        ends = [train_once(name, lr, None, data, epochs, seed, on_epoch).val_loss for seed in TUNING_SEEDS]
        return mean(ends) if all(map(math.isfinite, ends)) else math.inf

    return min(LR_GRID, key=loss)


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
    total_steps = epochs * (len(data.train.labels) // BATCH_SIZE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = small_cnn(num_classes=len(TRANSFER_TO)).to(data.train.labels.device)
    optimizer = SGD(model.parameters(), lr=lr or 1.0, weight_decay=WEIGHT_DECAY)
    if learned is not None:
        step = by_schedule(
            optimizer, LearnedLR(optimizer, learned, total_steps=total_steps, num_classes=len(TRANSFER_TO))
        )
    else:
        step = by_hand(optimizer, HAND_DESIGNED[name](optimizer, total_steps, epochs))
    curves, order = Curves(), torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        train_epoch(model, data.train, step, BATCH_SIZE, order, curves)
        curves.test_accuracy.append(evaluate(model, data.test)[1])
        on_epoch()
    curves.val_loss = evaluate(model, data.val)[0]
    return curves


def summarise(runs: list[Run], schedule: Schedule) -> list[dict[str, Any]]:
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
                "note": f"learned on {schedule.card.name}" if name == LEARNED else "",
            }
        )
    return rows


def write_record(path: Path, runs: list[Run], schedule: Schedule, epochs: int, device: str) -> None:
    """What was run, on what, and everything it gave; written after every training."""
    record = {
        "task": "scikit-learn digits, small CNN, SGD",
        "settings": {
            "epochs": epochs,
            "lr_grid": LR_GRID,
            "weight_decay": WEIGHT_DECAY,
            "batch_size": BATCH_SIZE,
            "classes": TRANSFER_TO,
        },
        "schedule": schedule.card.to_dict(),
        "versions": versions(),
        "machine": {"system": platform.platform(), "device": device_name(device)},
        "rows": summarise(runs, schedule),
        "runs": [
            {"schedule": run.schedule, "initial_lr": run.initial_lr, "seed": run.seed, **run.curves.to_dict()}
            for run in runs
        ],
    }
    write_atomically(path, json.dumps(record).encode())


def device_name(device: str) -> str:
    """In words."""
    return (
        torch.cuda.get_device_name(device) if device.startswith("cuda") else f"CPU, {torch.get_num_threads()} threads"
    )


def draw(path: Path, runs: list[Run], schedule: Schedule) -> None:
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
    seeds = len({run.seed for run in runs})
    figure.suptitle(f"Digits 5 to 9, small CNN, SGD, mean of {seeds} seeds.  {LEARNED} learned on {schedule.card.name}")
    figure.savefig(path, dpi=130)
