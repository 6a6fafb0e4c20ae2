"""NaN and infinite losses at random steps: they reach no network, and every LR stays finite."""

import math

import pytest
import torch
from cases import OPTIMIZERS, SCHEDULES, Task
from hypothesis import given, settings
from hypothesis import strategies as st
from meta_setting import Setting
from steps import lrs_for, sgd

from mlrsnet import LearnedLR

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
@pytest.mark.parametrize("name", ["paper", "official", "mlp", "horizon", "trend"])
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
    assert is_finite(faulty.state_dict()["law"][-1])


@pytest.mark.parametrize("tensor_lr", [False, True], ids=["host", "device"])
@settings(max_examples=6)
@given(faults=FAULTS, lost=st.booleans())
def test_the_default_stays_finite(tensor_lr, faults, lost):
    """`lost`: a bad loss has gone through `backward`, as in a real training, and the weights are lost."""
    task = Task()
    optimizer = OPTIMIZERS["adamw"](task.model.parameters(), torch.tensor(0.1) if tensor_lr else 0.1)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    for step in range(STEPS):
        loss = task.loss(step)
        bad = torch.tensor(faults[step]) if step in faults else None
        optimizer.zero_grad()
        (loss if bad is None or not lost else loss * bad).backward()
        lr.step(loss.detach() if bad is None else bad)
        optimizer.step()
        assert math.isfinite(float(lr.get_last_lr()[0]))
    assert lr.status()["nonfinite"] >= len(faults)
    assert is_finite(lr.state_dict()["law"])
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
