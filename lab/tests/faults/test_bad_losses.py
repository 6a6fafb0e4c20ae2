"""NaN and infinite losses in the lab: they reach no network that learns, and records count them."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import tiny
from torch import nn

from mlrsnet_lab import records
from mlrsnet_lab.horizon import Data, Evolution, HorizonTrainer, Tasks, TaskSampler
from mlrsnet_lab.loop import run
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.stepper import Stepper

BAD = st.sampled_from([math.nan, math.inf, -math.inf])

pytestmark = [
    pytest.mark.filterwarnings("ignore:a loss was not finite:UserWarning"),
    pytest.mark.filterwarnings("ignore:10 losses in a row were not finite:UserWarning"),
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


@settings(max_examples=5)
@given(faults=st.dictionaries(st.integers(0, 3), BAD, min_size=1, max_size=4))
def test_no_bad_fitness_reaches_the_network_that_whole_trainings_teach(faults):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 4, generator=generator)
    tasks = TaskSampler([Data(x, (x.sum(1) > 0).long())], [lambda data: nn.Linear(4, 2)], horizons=(5, 8), val_size=40)
    judged = Tasks(tasks, 1, fitness=Faulty(faults), held_out=0)
    trainer = HorizonTrainer(judged, evolution=Evolution(generations=3, members=4))
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
    record = run(tiny(schedule=schedule, epochs=3), tmp_path, Settings(device="cpu"))
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
