"""Loops in the wrong order get one warning. Loops in the right order get none."""

import copy
import gc
import math
import pickle
import warnings
import weakref

import pytest
import torch
from cases import Task
from torch.optim import SGD, Adam

from mlrsnet import LearnedLR, LSTMNet, MetaTrainer

BEFORE = r"the optimizer took 1 step\(s\) before the first LearnedLR.step\(loss\), at its own LR: call loss.backward\(\), then"
BETWEEN = (
    r"the optimizer took 3 steps since the last LearnedLR.step\(loss\), all at one LR: call step\(loss\) before every"
)


class OwnSteps(SGD):
    """A subclass whose step calls its parent's. Both have hooks."""

    def step(self, closure=None):
        return super().step(closure)


def make(schedule, task, kind=SGD, lr=0.1):
    optimizer = kind(task.model.parameters(), lr=lr)
    return optimizer, LearnedLR(optimizer, schedule, total_steps=20, num_classes=5)


def train(task, optimizer, lr, steps):
    for step in steps:
        lr.step(task.backward(step, optimizer))
        optimizer.step()


@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)], ids=["float", "tensor"])
def test_the_order_of_torchs_own_schedulers_is_told_once(paper, task, rate):
    optimizer, lr = make(paper, task, lr=rate)
    with pytest.warns(UserWarning, match=BEFORE) as told:
        for step in range(5):
            loss = task.backward(step, optimizer)
            optimizer.step()
            lr.step(loss)
    assert len(told) == 1
    assert told[0].filename == __file__


@pytest.mark.parametrize("kind", [SGD, OwnSteps])
def test_a_step_once_an_epoch_is_told_once(paper, task, kind):
    optimizer, lr = make(paper, task, kind)
    with pytest.warns(UserWarning, match=BETWEEN) as told:
        for step in range(9):
            loss = task.backward(step, optimizer)
            if step % 3 == 0:
                lr.step(loss)
            optimizer.step()
    assert len(told) == 1


def test_an_order_that_is_trusted_is_quiet_for_copies_too(paper, task):
    _, lr = make(paper, task)
    lr.trust_order()
    for scheduler in (lr, copy.deepcopy(lr), pickle.loads(pickle.dumps(lr))):
        for _ in range(2):
            scheduler.optimizer.step()
            scheduler.optimizer.step()
            scheduler.step(1.0)


@pytest.mark.parametrize("kind", [SGD, Adam, OwnSteps])
def test_the_right_order_is_quiet(paper, task, kind):
    SGD(task.model.parameters())  # gives OwnSteps' parent hooks as well
    train(task, *make(paper, task, kind), range(5))


def test_micro_batches_closures_and_skipped_steps_are_quiet(paper, task):
    optimizer, lr = make(paper, task)
    for step in range(6):  # accumulation
        lr.observe(task.backward(step, optimizer))
        if step % 2:
            lr.step()
            optimizer.step()
            lr.step()  # frameworks call it without a loss
    for step in range(6):  # a GradScaler that skips
        lr.step(task.backward(step, optimizer))
        if step % 2:
            optimizer.step()

    def closure():
        loss = task.backward(0, optimizer)
        lr.step(loss)
        return loss

    optimizer, lr = make(paper, Task())
    for _ in range(3):
        optimizer.step(closure)


@pytest.mark.parametrize("order", ["scheduler first", "optimizer first"])
def test_a_resumed_run_is_quiet(paper, task, order):
    optimizer, lr = make(paper, task)
    train(task, optimizer, lr, range(2))
    saved = [optimizer.state_dict(), lr.state_dict()]
    optimizer, lr = make(paper, task)
    optimizer.step()  # steps before a state is loaded do not count
    pair = list(zip((optimizer, lr), saved, strict=True))
    for thing, state in pair if order == "optimizer first" else reversed(pair):
        thing.load_state_dict(state)
    train(task, optimizer, lr, range(2, 5))


@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)], ids=["float", "tensor"])
def test_a_step_that_only_creates_the_optimizers_state_does_not_count(paper, task, rate):
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    optimizer, lr = make(paper, task, Adam, lr=rate)
    with warnings.catch_warnings(action="ignore"):  # torch's own warnings
        get_optimizer_state_dict(task.model, optimizer)  # it steps at an LR of 0
    assert optimizer.state
    train(task, optimizer, lr, range(2))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda lr: pickle.loads(pickle.dumps(lr))])
def test_copies_watch_their_own_optimizer(paper, task, copied):
    optimizer, lr = make(paper, task)
    train(task, optimizer, lr, range(2))
    twin = copied(lr)
    optimizer.step()
    optimizer.step()  # a step of the first optimizer
    twin.step(1.0)
    for _ in range(3):
        twin.optimizer.step()
    with pytest.warns(UserWarning, match=BETWEEN):
        twin.step(1.0)


def test_an_optimizer_does_not_keep_its_schedule_alive_and_can_be_copied(paper, task):
    optimizer, lr = make(paper, task)
    gone = weakref.ref(lr)
    del lr
    gc.collect()
    assert gone() is None
    for twin in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        twin.step()


def test_a_compiled_step_breaks_no_more_often(paper, task):
    def breaks(optimizer):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        step = torch.compile(optimizer.step, backend="eager")
        for index in range(4):
            task.backward(index, optimizer)
            step()
        return sum(torch._dynamo.utils.counters["graph_break"].values())

    watched, _ = make(paper, task, lr=torch.tensor(0.1))
    assert breaks(watched) == breaks(SGD(task.model.parameters(), lr=torch.tensor(0.1)))


def test_an_optimizer_without_hooks_is_taken_as_it_is(paper, task):
    class Bare(SGD):
        def __init__(self, parameters, lr):
            super().__init__(parameters, lr)
            del self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks

        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data.sub_(parameter.grad, alpha=group["lr"])

    Bare.step.hooked = True  # torch no longer wraps it
    optimizer, lr = make(paper, task, Bare)
    for step in range(3):
        loss = task.backward(step, optimizer)
        optimizer.step()
        lr.step(loss)
    assert not math.isnan(lr.get_last_lr()[0])


def meta_trainer(task, total_steps):
    optimizer = SGD(task.model.parameters(), lr=0.1)
    options = {"net": LSTMNet(4), "num_classes": 5, "every": 2, "val_loss": lambda: task.loss(9)}
    return optimizer, MetaTrainer(task.model, optimizer, total_steps=total_steps, **options)


@pytest.mark.parametrize("leftover", ["before", "after"])
def test_a_leftover_step_beside_meta_training_is_told_once(task, leftover):
    optimizer, meta = meta_trainer(task, 9)
    match = r"took 2 steps since the last MetaTrainer.step\(loss\), which takes one itself: remove optimizer.step\(\)"
    with pytest.warns(UserWarning, match=match) as told:
        for step in range(5):
            loss = task.backward(step, optimizer)
            if leftover == "before":
                optimizer.step()
            meta.step(loss)
            if leftover == "after":
                optimizer.step()
    assert len(told) == 1


def test_a_meta_training_past_its_horizon_is_told_once(task):
    optimizer, meta = meta_trainer(task, 3)
    for step in range(3):
        meta.step(task.backward(step, optimizer))
    with pytest.warns(
        UserWarning, match="step 4 is past total_steps=3, which counts optimizer steps, not epochs"
    ) as told:
        for step in range(3):
            meta.step(task.backward(step, optimizer))
    assert len(told) == 1
