"""`mlrsnet demo`: learn schedules on half of the digits, transfer them to the other half, compare.

1. Learn on the digits 0 to 4, in two ways: from the end of many small trainings of fully connected networks (full horizon), and
   one step ahead while a small CNN trains, as in the paper (Algorithm 1).
2. Transfer to the digits 5 to 9 without tuning: the full-horizon schedule drives other small trainings, and each learned
   schedule drives a small CNN, which the full-horizon schedule has never seen.
3. Compare with hand-designed schedules. Their LR is chosen from a grid first: one for all small trainings together, and for the
   CNN on validation data, with other seeds.

Test data is only reported. The same command gives the same numbers on the same machine.
"""

import math
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from mlrsnet.card import versions
from mlrsnet.files.writing import write_atomically
from mlrsnet.schedule import Schedule
from mlrsnet_lab import loop, records
from mlrsnet_lab.devices import device_name, resolve
from mlrsnet_lab.horizon import Comparison
from mlrsnet_lab.meta_specs import GreedySpec, HorizonSpec
from mlrsnet_lab.meta_training import OnGeneration, learn
from mlrsnet_lab.records import Record
from mlrsnet_lab.settings import DEFAULT, Settings
from mlrsnet_lab.sheets import slug
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.watch import Watcher

LEARN_ON, TRANSFER_TO = [0, 1, 2, 3, 4], [5, 6, 7, 8, 9]
LR_GRID = (0.1, 0.3, 1.0, 3.0, 10.0)
HAND_DESIGNED: dict[str, dict[str, Any]] = {
    "Fixed": {"schedule": "fixed"},
    "MultiStep": {"schedule": "multistep"},
    "Exponential": {"schedule": "exponential"},
    "SGDR": {"schedule": "sgdr", "schedule_options": {"first_cycle": 1 / 7}},  # its last cycle is complete
    "Cosine": {"schedule": "cosine", "schedule_options": {"warmup": 0.05}},
    "Linear": {"schedule": "linear", "schedule_options": {"warmup": 0.05}},
}
TUNING_SEEDS = (1000, 1001, 1002)
FULL_HORIZON, GREEDY = "Full horizon", "MLR-SNet"
DIGITS = RunSpec(task="digits", model="small_cnn", optimizer="sgd", batch_size=32, weight_decay=5e-4)
HORIZON_LEARNING = HorizonSpec(  # starts as a fixed LR, and is small enough to be learned in minutes on a CPU
    task="digits",
    task_options={"classes": LEARN_ON},
    held_out_options={"classes": TRANSFER_TO},
    tasks=4,
    hidden=16,
    anneal="none",
    name="small trainings on digits 0-4",
)
GREEDY_LEARNING = GreedySpec(
    task="digits", task_options={"classes": LEARN_ON}, epochs=40, batch_size=DIGITS.batch_size, name="digits 0-4"
)
RECORD = "demo.json"


@dataclass(frozen=True)
class DemoRun:
    """One training of the demo; `initial_lr` is None if the schedule finds its own range."""

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


@dataclass(frozen=True)
class LearnedBoth:
    """The schedules that step 1 learned, and how the full-horizon one compared before and after."""

    schedules: dict[str, Schedule]
    before: Comparison
    after: Comparison


def learn_both(
    generations: int,
    out: Path,
    settings: Settings = DEFAULT,
    *,
    on_generation: OnGeneration | None = None,
    watcher: Watcher | None = None,
) -> LearnedBoth:
    """Step 1, in folders below `out`. What an earlier demo left there is deleted."""
    folders = {name: out / f"learning-{slug(name)}" for name in (FULL_HORIZON, GREEDY)}
    for folder in folders.values():
        shutil.rmtree(folder, ignore_errors=True)
    spec = replace(HORIZON_LEARNING, generations=generations)
    _, trainer = learn(spec, folders[FULL_HORIZON], settings, on_generation=on_generation)
    watchers = [watcher] if watcher else []
    loop.run(GREEDY_LEARNING.run_spec(), folders[GREEDY], settings, watchers=watchers)
    schedules = {name: Schedule.read(folder / records.SCHEDULE) for name, folder in folders.items()}
    return LearnedBoth(schedules, trainer.comparisons[0], trainer.comparisons[-1])


def transfer(
    schedules: Mapping[str, Schedule],
    epochs: int,
    seeds: int,
    out: Path,
    settings: Settings = DEFAULT,
    *,
    watcher: Watcher | None = None,
    on_run: Callable[[list[DemoRun]], object] = lambda runs: None,
) -> list[DemoRun]:
    """Steps 2 and 3. Saves the schedules in `out`, and writes the record there after every training."""
    files = schedule_files(schedules, out)
    for name, schedule in schedules.items():
        schedule.save(files[name])

    def keep(runs: list[DemoRun]) -> None:
        write_record(out / RECORD, runs, schedules, epochs, settings)
        on_run(runs)

    write_record(out / RECORD, [], schedules, epochs, settings)
    return compare(epochs, seeds, files, settings, watcher or Watcher(), keep)


def schedule_files(schedules: Mapping[str, Schedule], out: Path) -> dict[str, Path]:
    """Where each schedule is saved."""
    return {name: out / f"{slug(name)}.safetensors" for name in schedules}


def num_trainings(seeds: int, learned: int) -> int:
    """How many trainings `compare` makes, including those that choose initial LRs."""
    return len(HAND_DESIGNED) * len(LR_GRID) * len(TUNING_SEEDS) + seeds * (len(HAND_DESIGNED) + learned)


def compare(
    epochs: int,
    seeds: int,
    learned: Mapping[str, Path],
    settings: Settings,
    watcher: Watcher,
    on_run: Callable[[list[DemoRun]], None],
) -> list[DemoRun]:
    """Train under every schedule. The same seed gives the same initialisation and the same order of batches."""
    digits = replace(DIGITS, task_options={"classes": TRANSFER_TO}, epochs=epochs)

    def train(spec: RunSpec) -> Record:
        return loop.run(spec, settings=settings, watchers=[watcher])

    specs: dict[str, tuple[RunSpec, float | None]] = {}
    for name, changes in HAND_DESIGNED.items():
        best = choose_lr(replace(digits, **changes), train)
        specs[name] = replace(digits, lr=best, **changes), best
    for name, schedule in learned.items():
        specs[name] = replace(digits, schedule="learned", schedule_options={"schedule": str(schedule)}), None
    runs: list[DemoRun] = []
    for seed in range(seeds):
        for name, (spec, lr) in specs.items():
            runs.append(DemoRun(name, lr, train(replace(spec, seed=seed))))
            on_run(runs)
    return runs


def choose_lr(spec: RunSpec, train: Callable[[RunSpec], Record]) -> float:
    """The initial LR of the grid with the lowest final validation loss, averaged over the tuning seeds."""

    def loss(lr: float) -> float:
        trained = [train(replace(spec, lr=lr, seed=seed, eval_every=spec.epochs)) for seed in TUNING_SEEDS]
        ends = [record.result["val_loss"] for record in trained]
        return mean(ends) if all(map(math.isfinite, ends)) else math.inf

    return min(LR_GRID, key=loss)


def summarise(runs: list[DemoRun], learned: Mapping[str, Schedule]) -> list[dict[str, Any]]:
    """One row per schedule: last-epoch accuracy and loss on test data, over the seeds."""
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


def write_record(
    path: Path, runs: list[DemoRun], learned: Mapping[str, Schedule], epochs: int, settings: Settings
) -> None:
    """What was run, where, and all results so far."""
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
        "commit": records.commit(),
        "machine": {"system": platform.platform(), "device": device_name(resolve(settings.device))},
        "rows": summarise(runs, learned),
        "runs": [run.to_dict() for run in runs],
    }
    write_atomically(path, records.dumps(record).encode())
