"""NaN and infinite losses at random steps: they reach no network, every LR stays finite, and records count them."""

import dataclasses
import json
import math

import pytest
import torch
from cases import OPTIMIZERS, SCHEDULES, Task
from engines import lrs_for, sgd
from hypothesis import given, settings
from hypothesis import strategies as st
from meta_setting import Setting
from runs import tiny
from torch import nn

from mlrsnet import LearnedLR
from mlrsnet.lab import records, universal
from mlrsnet.lab.horizon import Data, Evolution, HorizonTrainer, Tasks, TaskSampler
from mlrsnet.lab.loop import run
from mlrsnet.lab.stepper import Stepper
from mlrsnet.lab.table import kinds
from mlrsnet.lab.table.columns import Column
from mlrsnet.lab.table.file import Table
from mlrsnet.lab.table.fill import fill

BAD = st.sampled_from([math.nan, math.inf, -math.inf])
STEPS = 24
FAULTS = st.dictionaries(st.integers(0, STEPS - 1), BAD, max_size=STEPS)
"""Steps and what their losses are instead."""

pytestmark = [
    pytest.mark.filterwarnings("ignore:a loss was not finite:UserWarning"),
    pytest.mark.filterwarnings("ignore:10 losses in a row were not finite:UserWarning"),
    pytest.mark.filterwarnings("ignore:a meta-update was skipped:UserWarning"),
    pytest.mark.filterwarnings("ignore:.* could .*be measured:UserWarning"),
]


def is_finite(value):
    """Whether all numbers in a state are finite."""
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_finite, value))
    if isinstance(value, torch.Tensor):
        return bool(torch.isfinite(value).all())
    return not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize("tensor_lr", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("name", ["paper", "official", "mlp", "horizon", "trend", "reading"])
@settings(max_examples=10)
@given(losses=st.lists(st.one_of(st.floats(0.5, 4.0), BAD), min_size=1, max_size=STEPS))
def test_the_lrs_are_those_of_a_training_without_the_bad_losses(name, tensor_lr, losses):
    torch.manual_seed(1)
    schedule, finite = SCHEDULES[name](), [loss for loss in losses if math.isfinite(loss)]
    faulty, clean = (
        LearnedLR(sgd(torch.tensor(0.1) if tensor_lr else 0.1), schedule, total_steps=STEPS, num_classes=5)
        for _ in range(2)
    )
    used, expected = lrs_for(faulty, losses), lrs_for(clean, finite)
    assert [lr for loss, lr in zip(losses, used, strict=True) if math.isfinite(loss)] == expected
    assert all(map(math.isfinite, used))
    assert faulty.status()["nonfinite"] == len(losses) - len(finite)
    assert is_finite(faulty.engine.backend.copy_memory())


@pytest.mark.parametrize("tensor_lr", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("schedule", ["universal-2", "universal-relative"])
@settings(max_examples=6)
@given(faults=FAULTS, lost=st.booleans())
def test_a_range_that_follows_the_weights_stays_finite(schedule, tensor_lr, faults, lost):
    """`lost`: a bad loss has gone through `backward`, as in a real training, and the weights are lost."""
    task = Task()
    optimizer = OPTIMIZERS["adamw"](task.model.parameters(), torch.tensor(0.1) if tensor_lr else 0.1)
    lr = LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=5)
    for step in range(STEPS):
        loss = task.loss(step)
        bad = torch.tensor(faults[step]) if step in faults else None
        optimizer.zero_grad()
        (loss if bad is None or not lost else loss * bad).backward()
        lr.step(loss.detach() if bad is None else bad)
        optimizer.step()
        assert math.isfinite(float(lr.get_last_lr()[0]))
    assert lr.status()["nonfinite"] >= len(faults)
    assert is_finite(lr.engine.backend.copy_memory())
    assert is_finite(task.weights()) or lost


@settings(max_examples=15)
@given(train=FAULTS, val=FAULTS)
def test_no_bad_loss_reaches_the_network_that_algorithm_1_learns(train, val):
    run = Setting(OPTIMIZERS["sgd"], every=2, total_steps=STEPS)
    good, step = run.meta.val_loss, 0
    run.meta.val_loss = lambda: good() * val.get(step, 1.0)
    for step in range(STEPS):
        loss = run.backward(step)
        run.meta.step(torch.tensor(train[step]) if step in train else loss)
        assert math.isfinite(float(run.optimizer.param_groups[0]["lr"]))
    assert is_finite(run.meta.net.state_dict())
    assert is_finite(run.meta.meta_optimizer.state_dict())
    due = range(0, STEPS, 2)
    assert run.meta.skipped_updates + run.meta.num_updates == len(due)
    assert run.meta.skipped_updates == sum(step in train or step in val for step in due)
    assert is_finite(run.meta.schedule().net.state_dict())


class Faulty:
    """A fitness that is not finite for some members; `faults` says which, in the order of trainings."""

    def __init__(self, faults):
        self.faults = faults

    def __call__(self, outputs, targets):
        losses = nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
        found = losses.view(targets.shape).mean(1)
        for place, bad in self.faults.items():
            found[place % len(found)] = bad
        return found


@pytest.mark.parametrize("utility", ["ranks", "gaps"])
@settings(max_examples=5)
@given(faults=st.dictionaries(st.integers(0, 3), BAD, min_size=1, max_size=4))
def test_no_bad_fitness_reaches_the_network_that_whole_trainings_teach(utility, faults):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 4, generator=generator)
    tasks = TaskSampler([Data(x, (x.sum(1) > 0).long())], [lambda data: nn.Linear(4, 2)], horizons=(5, 8), val_size=40)
    judged = Tasks(tasks, 1, fitness=Faulty(faults), held_out=0)
    trainer = HorizonTrainer(judged, evolution=Evolution(generations=3, members=4, utility=utility))
    trainer.run()
    for line in trainer.history:
        assert line.diverged == len(faults) / 4
        assert math.isfinite(line.fitness) == (len(faults) < 4)
        assert math.isfinite(line.better_half) == (len(faults) <= 2)
        assert not math.isfinite(line.better_half) or line.better_half < 100
    assert is_finite(trainer.weights)
    assert is_finite(trainer.schedule().net.state_dict())
    assert is_finite(trainer.state_dict()["meta_optimizer"])


def reads(bad, steps):
    """A `Stepper.gradients` whose loss is another one at some steps. The gradients are good, so the training goes on."""
    plain = Stepper.gradients

    def gradients(self):
        loss = plain(self)
        return torch.full_like(loss, bad) if self.step_count in steps else loss

    return gradients


@pytest.mark.parametrize("schedule", ["cosine", "mlr-snet", "learned"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_record_counts_bad_losses_and_says_that_the_run_diverged(bad, schedule, tmp_path, monkeypatch):
    monkeypatch.setattr(Stepper, "gradients", reads(bad, {3, 70, 90}))
    record = run(tiny(schedule=schedule, epochs=3), tmp_path, device="cpu")
    assert record.status == "diverged"
    assert [line.get("nonfinite_losses") for line in record.epochs] == [1]

    def refuse(name):
        raise AssertionError(f"{name} in JSON")

    for file in (*tmp_path.glob("*.json"), *tmp_path.glob("*.jsonl")):
        for line in file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]:
            json.loads(line, parse_constant=refuse)
    kept = records.read(tmp_path)
    assert kept.epochs[0]["train_loss"] is None
    assert kept.trace["loss"][3] is None
    assert all(map(math.isfinite, kept.trace["lr"]))
    assert is_finite(kept.epochs[0]["val_loss"])


def test_a_training_that_diverges_is_infinite_in_the_table_and_not_a_large_number(tmp_path, monkeypatch):
    digits = next(source for source in universal.TRAINING if source.name == "digits")
    monkeypatch.setattr(kinds, "PICTURES", (digits,))
    kind = dataclasses.replace(kinds.draw(0, horizons=(6, 12), families=("mlp",)), train_size=200, batch_size=16)
    columns = [Column("absolute", size) for size in (1e25, 0.1)]
    fill(tmp_path / "table.npz", [kind], columns, root=tmp_path)
    lost, good = Table.load(tmp_path / "table.npz").fitness[0]
    assert lost == math.inf
    assert good < 10
