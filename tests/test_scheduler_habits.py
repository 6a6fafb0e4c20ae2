"""Habits from other schedulers: each works, or is told at once with what to do."""

import gc
import weakref

import numpy as np
import pytest
import torch
from cases import Task
from steps import lrs_for, sgd
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import LinearLR, SequentialLR

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
def test_the_number_of_an_epoch_is_not_taken_for_a_loss(number, call):
    """As timm's schedulers take it, and as SequentialLR passes 0."""
    lr = LearnedLR(sgd(), total_steps=9)
    with pytest.raises(
        TypeError, match=r"loss must be a float .* got .*: pass the loss of this batch, not the number of an epoch"
    ):
        getattr(lr, call)(number)


@pytest.mark.parametrize(
    "loss", [1.0, np.float32(1.0), np.array(1.0), torch.tensor(1.0), torch.tensor([1.0]).bfloat16()], ids=repr
)
def test_a_loss_that_happens_to_be_whole_is_one(loss, paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    lrs_for(lr, [loss])
    assert lr.status()["initial_loss"] == 1.0


@pytest.mark.parametrize("how", ["once a batch", "once an epoch", "four times a step"])
def test_steps_are_counted_by_the_optimizer_whoever_calls_step_how_often(task, how):
    """As where accumulation, several processes or a framework call the scheduler too often or too seldom."""
    optimizer = SGD(task.model.parameters(), lr=0.1)
    lr = LearnedLR(optimizer, total_steps=6)
    for step in range(24):
        loss = task.backward(step, optimizer)
        if (step + 1) % 4 == 0:
            optimizer.step()
        if how == "once a batch" or (how == "once an epoch" and step % 12 == 11):
            lr.step(loss)
        for _ in range(4 if how == "four times a step" else 0):
            lr.step()
        lr._step_count += 1  # as Accelerate does
    assert (lr.last_epoch, lr.status()["step"], lr.status()["progress"]) == (6, 6, pytest.approx(5 / 6))


def test_a_number_of_steps_from_a_division_is_taken_as_it_is():
    assert LearnedLR(sgd(), total_steps=3200 / 32).total_steps == 100
    lr = LearnedLR(sgd(), total_steps=np.float64(10.0))
    lr.extend(20.0)
    lr.anneal(5.0)
    assert lr.total_steps == 5


@pytest.mark.parametrize("value", [100.5, 0.0, -1.0, float("nan"), float("inf"), True, "100"])
def test_a_number_of_steps_that_is_none_says_what_to_pass(value):
    rounded = r", rounded up: math.ceil\(100.5\)" if value == 100.5 else ""
    with pytest.raises(
        ValueError,
        match=f"total_steps must be a whole number >= 1, got .*: optimizer steps of the whole training.*{rounded}",
    ):
        LearnedLR(sgd(), total_steps=value)


def test_sequential_lr_is_refused_with_what_to_do(paper):
    optimizer = sgd()
    warm_up, lr = LinearLR(optimizer), LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    with pytest.raises(TypeError, match=r"last_epoch must not be set: .* use LearnedLR on its own"):
        SequentialLR(optimizer, [warm_up, lr], milestones=[2])


def test_a_step_that_only_creates_the_optimizers_state_does_not_count(task, kind):
    """torch's distributed checkpoints step at an LR of 0, with gradients of 0."""
    optimizer = Adam(task.model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=9)
    get_optimizer_state_dict(task.model, optimizer)
    assert optimizer.state
    assert lr.last_epoch == 0
    assert lr.get_last_lr() == [kind()]
    task.backward(0, optimizer)
    optimizer.step()
    get_optimizer_state_dict(task.model, optimizer)
    assert lr.last_epoch == 1


class OwnSteps(SGD):
    """A subclass whose step calls its parent's. Both have hooks."""

    def step(self, closure=None):
        return super().step(closure)


@pytest.mark.parametrize("make", [SGD, Adam, OwnSteps])
def test_a_closure_gives_the_same_training(make, kind):
    plain, own = Task(), Task()
    optimizer = make(plain.model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=8)
    for step in range(8):
        lr.step(plain.backward(step, optimizer))
        optimizer.step()
    other = make(own.model.parameters(), lr=kind())
    lr = LearnedLR(other, total_steps=8)
    for step in range(8):

        def closure(step=step):
            loss = own.backward(step, other)
            lr.step(loss)
            return loss

        (other.step(closure) if step % 2 else other.step(closure=closure)).item()
    assert torch.equal(own.weights(), plain.weights())
    assert lr.last_epoch == 8


def test_nothing_keeps_an_optimizer_alive_but_it_keeps_its_schedule(task):
    optimizer = SGD(task.model.parameters(), lr=0.1)
    gone = weakref.ref(LearnedLR(optimizer, total_steps=9)._driver), weakref.ref(optimizer)
    task.backward(0, optimizer)
    gc.collect()
    optimizer.step()
    assert gone[0]() is not None
    del optimizer
    gc.collect()
    assert [one() for one in gone] == [None, None]


def test_a_removed_or_replaced_one_says_so(kind):
    optimizer = sgd(kind())
    old = LearnedLR(optimizer, total_steps=9)
    with pytest.warns(UserWarning, match=r"has a LearnedLR already, which the new one replaces.*call remove\(\)"):
        new = LearnedLR(optimizer, total_steps=9)
    lrs_for(new, [1.0])
    assert (old.last_epoch, new.last_epoch) == (0, 1)
    new.remove()
    used = new.get_last_lr()
    optimizer.step()
    assert (new.last_epoch, new.get_last_lr()) == (1, used)
    for one in (old, new):
        for call in (
            lambda one=one: one.step(1.0),
            one.discard,
            lambda one=one: one.anneal(3),
            lambda one=one: one.validate(1.0),
        ):
            with pytest.raises(
                RuntimeError, match=r"was removed from its optimizer.*use the newer one, or make a new one"
            ):
                call()
        one.step()  # frameworks call it


def test_a_compiled_step_trains_alike(kind):
    found = []
    for compiled in (False, True):
        task = Task()
        optimizer = SGD(task.model.parameters(), lr=kind())
        lr = LearnedLR(optimizer, total_steps=4)
        update = torch.compile(optimizer.step, backend="aot_eager") if compiled else optimizer.step
        for step in range(4):
            lr.step(task.backward(step, optimizer))
            update()
        found.append(lr.history.tolist())
        assert lr.last_epoch == 4
    assert found[1] == pytest.approx(found[0], rel=1e-5)
