"""`mlrsnet demo`: learn schedules on one half of the digits, transfer them to the other, compare.

1. Learn, on the digits 0 to 4: from the end of many small trainings of fully connected networks (full horizon), and, as in
   the paper, a step ahead while one small CNN trains (Algorithm 1).
2. Transfer to the digits 5 to 9, with nothing to choose: the full-horizon schedule drives other small trainings, and each
   learned schedule drives a small CNN, a network of another kind.
3. Compare: the same under hand-designed schedules, whose LR is first chosen from a grid: for the small trainings one for all of
   them, for the CNN on validation data, with seeds of its own.

Test data only enters what is reported. The same command gives the same numbers on the same machine.
"""

import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from mlrsnet._files.storage import write_atomically
from mlrsnet.card import versions
from mlrsnet.lab import records, trainer
from mlrsnet.lab.horizon import HorizonSpec
from mlrsnet.lab.records import Record
from mlrsnet.lab.spec import RunSpec
from mlrsnet.lab.trainer import device_name, resolve
from mlrsnet.lab.watch import Watcher
from mlrsnet.schedule import Schedule

LEARN_ON, TRANSFER_TO = [0, 1, 2, 3, 4], [5, 6, 7, 8, 9]
LR_GRID = (0.1, 0.3, 1.0, 3.0, 10.0)
HAND_DESIGNED: dict[str, dict[str, Any]] = {
    "Fixed": {"schedule": "fixed"},
    "MultiStep": {"schedule": "multistep"},
    "Exponential": {"schedule": "exponential"},
    "SGDR": {"schedule": "sgdr", "schedule_options": {"first_cycle": 1 / 7}},  # ends with a finished cycle
    "Cosine": {"schedule": "cosine", "schedule_options": {"warmup": 0.05}},
    "Linear": {"schedule": "linear", "schedule_options": {"warmup": 0.05}},
}
TUNING_SEEDS = (1000, 1001, 1002)
FULL_HORIZON, GREEDY = "Full horizon", "MLR-SNet"
GREEDY_EPOCHS, HELD_OUT = 40, 48
DIGITS = RunSpec(task="digits", model="small_cnn", optimizer="sgd", batch_size=32, weight_decay=5e-4)


@dataclass(frozen=True)
class Run:
    """One training of the demo; `initial_lr` is None where the schedule finds its own range."""

    schedule: str
    initial_lr: float | None
    record: Record

    @property
    def test_accuracy(self) -> list[float]:
        """Of every epoch, in percent."""
        return [line["test_metric"] for line in self.record.epochs]

    def to_dict(self) -> dict[str, Any]:
        """For the record."""
        return {
            "schedule": self.schedule,
            "initial_lr": self.initial_lr,
            "seed": self.record.spec["seed"],
            "test_accuracy": self.test_accuracy,
            "val_loss": self.record.result["val_loss"],
            "loss": self.record.trace["loss"],
            "lr": self.record.trace["lr"],
        }


def horizon_learning(generations: int) -> HorizonSpec:
    """Step 1, full horizon: a network that begins as a fixed LR, small enough to be learned in minutes on a CPU."""
    return HorizonSpec(
        task="digits",
        task_options={"classes": LEARN_ON},
        held_out=HELD_OUT,
        held_out_options={"classes": TRANSFER_TO},
        generations=generations,
        tasks=4,
        hidden=16,
        anneal="none",
        name="small trainings on digits 0-4",
    )


def greedy_learning(epochs: int) -> RunSpec:
    """Step 1, Algorithm 1."""
    options = {"every": 5, "name": "digits 0-4"}
    return replace(
        DIGITS, task_options={"classes": LEARN_ON}, epochs=epochs, schedule="mlr-snet", schedule_options=options
    )


def num_trainings(seeds: int, learned: int) -> int:
    """How many trainings `compare` makes, the choice of initial LRs included."""
    return len(HAND_DESIGNED) * len(LR_GRID) * len(TUNING_SEEDS) + seeds * (len(HAND_DESIGNED) + learned)


def compare(
    epochs: int,
    seeds: int,
    learned: Mapping[str, Path],
    device: str,
    watcher: Watcher,
    on_run: Callable[[list[Run]], None],
) -> list[Run]:
    """Steps 2 and 3. The same seed gives the same initialisation and the same order of batches."""
    task = replace(DIGITS, task_options={"classes": TRANSFER_TO}, epochs=epochs)

    def train(spec: RunSpec) -> Record:
        return trainer.run(spec, device=device, watchers=[watcher])

    specs: dict[str, tuple[RunSpec, float | None]] = {}
    for name, changes in HAND_DESIGNED.items():
        best = choose_lr(replace(task, **changes), train)
        specs[name] = replace(task, lr=best, **changes), best
    for name, schedule in learned.items():
        specs[name] = replace(task, schedule="learned", schedule_options={"schedule": str(schedule)}), None
    runs: list[Run] = []
    for seed in range(seeds):
        for name, (spec, lr) in specs.items():
            runs.append(Run(name, lr, train(replace(spec, seed=seed))))
            on_run(runs)
    return runs


def choose_lr(spec: RunSpec, train: Callable[[RunSpec], Record]) -> float:
    """The initial LR of the grid with the lowest validation loss at the end, the mean over the tuning seeds."""

    def loss(lr: float) -> float:
        trained = [train(replace(spec, lr=lr, seed=seed, eval_every=spec.epochs)) for seed in TUNING_SEEDS]
        ends = [record.result["val_loss"] for record in trained]
        return mean(ends) if all(map(math.isfinite, ends)) else math.inf

    return min(LR_GRID, key=loss)


def summarise(runs: list[Run], learned: Mapping[str, Schedule]) -> list[dict[str, Any]]:
    """One row a schedule: last-epoch accuracy and loss on test data, over the seeds."""
    rows = []
    for name in dict.fromkeys(run.schedule for run in runs):
        those = [run for run in runs if run.schedule == name]
        last = [run.test_accuracy[-1] for run in those]
        rows.append(
            {
                "schedule": name,
                "seeds": len(last),
                "test_accuracy": mean(last),
                "test_accuracy_std": stdev(last) if len(last) > 1 else 0.0,
                "test_loss": mean(run.record.result["test_loss"] for run in those),
                "initial_lr": those[0].initial_lr,
                "note": f"learned on {learned[name].card.name}" if name in learned else "",
            }
        )
    return rows


def write_record(path: Path, runs: list[Run], learned: Mapping[str, Schedule], epochs: int, device: str) -> None:
    """What was run, on what, and everything it gave; written after every training."""
    record = {
        "task": "scikit-learn digits, small CNN, SGD",
        "settings": {
            "epochs": epochs,
            "lr_grid": LR_GRID,
            "weight_decay": DIGITS.weight_decay,
            "batch_size": DIGITS.batch_size,
            "classes": TRANSFER_TO,
        },
        "schedules": {name: schedule.card.to_dict() for name, schedule in learned.items()},
        "versions": versions(),
        "machine": {"system": platform.platform(), "device": device_name(resolve(device))},
        "rows": summarise(runs, learned),
        "runs": [run.to_dict() for run in runs],
    }
    write_atomically(path, records.dumps(record).encode())


def draw(path: Path, runs: list[Run], learned: Mapping[str, Schedule]) -> None:
    """Training loss, test accuracy and LR over the epochs, the mean over the seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4.4), layout="constrained")
    loss_axes, accuracy_axes, lr_axes = figure.subplots(1, 3)
    for name in dict.fromkeys(run.schedule for run in runs):
        those = [run for run in runs if run.schedule == name]
        epochs = min(len(run.test_accuracy) for run in those)  # one that diverged is shorter
        style = {
            "label": name,
            "linewidth": 2.4 if name in learned else 1.3,
            "color": "black" if name in learned else None,
            "linestyle": "--" if name == GREEDY else "-",
        }
        loss = _mean([[line["train_loss"] for line in run.record.epochs] for run in those])
        lr = _mean([run.record.trace["lr"] for run in those])
        loss_axes.plot(range(1, epochs + 1), loss, **style)
        accuracy_axes.plot(range(1, epochs + 1), _mean([run.test_accuracy for run in those]), **style)
        lr_axes.plot(torch.arange(len(lr)) * epochs / len(lr), lr, **style)
    loss_axes.set(xlabel="epoch", ylabel="training loss", yscale="log")
    accuracy_axes.set(xlabel="epoch", ylabel="test accuracy (%)")
    lr_axes.set(xlabel="epoch", ylabel="LR", yscale="log", ylim=(1e-5, None))
    for axes in (loss_axes, accuracy_axes, lr_axes):
        axes.grid(alpha=0.3)
    accuracy_axes.legend(frameon=False)
    seeds = len({run.record.spec["seed"] for run in runs})
    told = "; ".join(f"{name}: learned on {schedule.card.name}" for name, schedule in learned.items())
    figure.suptitle(f"Digits 5 to 9, small CNN, SGD, mean of {seeds} {'seed' if seeds == 1 else 'seeds'}.  {told}")
    figure.savefig(path, dpi=130)


def _mean(curves: list[list[float]]) -> torch.Tensor:
    """Over the seeds, as far as all of them go."""
    return torch.tensor([list(values) for values in zip(*curves, strict=False)]).mean(1)
