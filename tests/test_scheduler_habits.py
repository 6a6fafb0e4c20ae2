"""Habits from other schedulers: each works, or is told at once with what to do."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from cases import Task
from engines import sgd

from mlrsnet import LearnedLR

WHOLE = {
    "an epoch": 3,
    "the first epoch": 0,
    "numpy's": np.int64(3),
    "an array": np.array(3),
    "a tensor": torch.tensor(3),
    "true": True,
    "numpy's true": np.bool_(True),
}


@pytest.mark.parametrize("number", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("call", ["step", "observe"])
def test_the_number_of_an_epoch_is_not_taken_for_a_loss(number, call, kind):
    """As timm's schedulers take it, and as SequentialLR passes 0."""
    lr = LearnedLR(sgd(kind()), "universal", total_steps=9)
    with pytest.raises(
        TypeError, match=r"loss must be a float .* got .*: pass the loss of this batch, not the number of an epoch"
    ):
        getattr(lr, call)(number)
    assert lr.last_epoch == 0


@pytest.mark.parametrize(
    "loss", [1.0, np.float32(1.0), np.array(1.0), torch.tensor(1.0), torch.tensor([1.0]).bfloat16()], ids=repr
)
def test_a_loss_that_happens_to_be_whole_is_one(loss, kind):
    lr = LearnedLR(sgd(kind()), "universal", total_steps=9)
    lr.step(loss)
    assert lr.status()["step"] == 1


def test_a_scheduler_that_is_stepped_last_is_told_in_its_first_step(kind):
    task = Task()
    optimizer = torch.optim.SGD(task.model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=9)
    loss = task.backward(0, optimizer)
    optimizer.step()
    with pytest.warns(
        UserWarning, match=r"took 1 step.* before the first LearnedLR.step\(loss\).*then step\(loss\), then"
    ) as told:
        lr.step(loss)
    assert len(told) == 1
    loss = task.backward(1, optimizer)
    optimizer.step()
    lr.step(loss)  # once is enough: a second warning would be an error


def test_a_number_of_steps_from_a_division_is_taken_as_it_is():
    assert LearnedLR(sgd(), total_steps=3200 / 32).total_steps == 100
    lr = LearnedLR(sgd(), total_steps=np.float64(10.0))
    lr.extend(20.0)
    lr.anneal(5.0)
    assert lr.total_steps == 5


@pytest.mark.parametrize("value", [100.5, 0.0, -1.0, float("nan"), float("inf"), True, "100"])
def test_a_number_of_steps_that_is_none_says_what_to_pass(value):
    with pytest.raises(
        ValueError, match=r"total_steps must be a whole number >= 1, got .*: optimizer steps of the whole training"
    ):
        LearnedLR(sgd(), total_steps=value)
    if value == 100.5:
        with pytest.raises(ValueError, match=r"rounded up: math.ceil\(100.5\)"):
            LearnedLR(sgd(), total_steps=value)


SCRIPT = """
import sys
import torch
from mlrsnet import LearnedLR

def main(total_steps, then):
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    lr = LearnedLR(optimizer, total_steps=total_steps)
    for step in range(120):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(3, (8,)))
        optimizer.zero_grad()
        loss.backward()
        lr.step(loss)
        optimizer.step()
    if then == "fails":
        raise OSError("a full disk")

main(int(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.parametrize(
    ("total_steps", "then", "told"), [(1200, "ends", True), (120, "ends", False), (1200, "fails", False)]
)
def test_a_plan_ten_times_too_long_is_told_when_the_program_ends(total_steps, then, told):
    words = [sys.executable, "-c", SCRIPT, str(total_steps), then]
    found = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert found.returncode == (then == "fails")
    assert found.stderr.count("a training stopped after 120 of 1200 steps") == told
    assert ("call anneal(steps) and train for so many steps more" in found.stderr) == told


def unfinished(lr):
    return lr.engine.course.is_unfinished


def steps(lr, count):
    for _ in range(count):
        lr.step(1.0 - 0.001 * lr.last_epoch)
    return lr


def test_a_training_that_may_go_on_or_was_ended_is_not_called_unfinished():
    assert unfinished(steps(LearnedLR(sgd(), "universal", total_steps=1000), 120))
    assert not unfinished(steps(LearnedLR(sgd(), "universal", total_steps=1000), 50))  # a trial
    assert not unfinished(steps(LearnedLR(sgd(), "universal", total_steps=200), 120))
    assert not unfinished(steps(LearnedLR(sgd(), "universal", total_steps=None), 120))
    saved = steps(LearnedLR(sgd(), "universal", total_steps=1000), 120)
    state = saved.state_dict()
    assert not unfinished(saved)
    resumed = LearnedLR(sgd(), "universal", total_steps=1000)
    resumed.load_state_dict(state)
    assert unfinished(steps(resumed, 1))
    resumed.extend(2000)
    assert unfinished(resumed)
    resumed.anneal(10)
    assert not unfinished(resumed)


def test_a_schedule_that_reads_only_the_loss_has_no_end_to_miss(paper):
    assert not unfinished(steps(LearnedLR(sgd(), paper, total_steps=1000, num_classes=5), 120))
