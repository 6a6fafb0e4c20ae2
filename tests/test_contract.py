"""What every schedule promises with every supported optimizer."""

import pytest
import torch
from cases import OPTIMIZERS, SCHEDULES, Task
from steps import exactly, through_a_file

from mlrsnet import LearnedLR

STEPS = 12
every_pair = pytest.mark.parametrize(
    ("schedule", "make_optimizer"), [(schedule, name) for schedule in SCHEDULES for name in OPTIMIZERS], indirect=True
)
every_schedule = pytest.mark.parametrize(
    ("schedule", "make_optimizer"), [(schedule, "adamw") for schedule in SCHEDULES], indirect=True
)


def build(schedule, make_optimizer, task, lrs=(0.1, 0.1)):
    parameters = list(task.model.parameters())
    optimizer = make_optimizer([{"params": parameters[:2], "lr": lrs[0]}, {"params": parameters[2:], "lr": lrs[1]}])
    return optimizer, LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=5)


def train(task, optimizer, lr, steps):
    used = []
    for step in steps:
        lr.step(task.backward(step, optimizer))
        optimizer.step()
        used.append(float(lr.get_last_lr()[0]))
    return used


def numbers(status):
    return {name: value for name, value in status.items() if not isinstance(value, str)}


@every_pair
def test_every_lr_is_finite_and_positive_and_is_the_one_used(schedule, make_optimizer, task):
    optimizer, lr = build(schedule, make_optimizer, task)
    for used in train(task, optimizer, lr, range(STEPS)):
        assert 0 < used < float("inf")
    assert lr.get_last_lr() == lr._last_lr == [group["lr"] for group in optimizer.param_groups]
    assert torch.isfinite(task.weights()).all()
    assert lr.status()["step"] == lr.last_epoch == STEPS


@pytest.mark.parametrize("order", ["construct, load, load", "load optimizer, construct, load", "scheduler first"])
@every_pair
def test_a_resumed_run_equals_one_that_never_stopped(schedule, make_optimizer, order):
    check_resumed(schedule, make_optimizer, order, lambda lr: lr)


@pytest.mark.parametrize("order", ["construct, load, load", "load optimizer, construct, load", "scheduler first"])
@every_schedule
def test_a_resumed_run_with_tensor_lrs_does_too(schedule, make_optimizer, order, kind):
    check_resumed(schedule, make_optimizer, order, kind)


def check_resumed(schedule, make_optimizer, order, kind):
    def begin(task):
        return build(schedule, make_optimizer, task, (kind(0.1), kind(0.02)))

    whole, first, second = Task(), Task(), Task(seed=9)
    expected = train(whole, *begin(whole), range(STEPS))
    optimizer, lr = begin(first)
    used = train(first, optimizer, lr, range(5))
    saved = through_a_file([first.model.state_dict(), optimizer.state_dict(), lr.state_dict()])

    second.inputs, second.labels = first.inputs, first.labels
    second.model.load_state_dict(saved[0])
    optimizer, lr = begin(second)
    pairs = [(optimizer, saved[1]), (lr, saved[2])]
    if order == "load optimizer, construct, load":
        lr.remove()
        optimizer.load_state_dict(saved[1])
        lr = LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=5)
        pairs = [(lr, saved[2])]
    for thing, state in reversed(pairs) if order == "scheduler first" else pairs:
        thing.load_state_dict(state)
    assert exactly(lr.state_dict()) == exactly(saved[2])
    assert float(lr.get_last_lr()[0]) == used[-1]
    assert used + train(second, optimizer, lr, range(5, STEPS)) == expected
    assert torch.equal(second.weights(), whole.weights())


@every_pair
def test_accumulated_micro_batches_equal_one_big_batch(schedule, make_optimizer):
    big, small = Task(), Task()
    expected = train(big, *build(schedule, make_optimizer, big), range(STEPS))
    optimizer, lr = build(schedule, make_optimizer, small)
    for step in range(STEPS):
        optimizer.zero_grad()
        for start in range(0, 16, 4):
            loss = small.loss(step, slice(start, start + 4))
            (loss / 4).backward()
            lr.observe(loss)
        lr.step()
        optimizer.step()
        lr.step()  # as frameworks do
        assert lr.get_last_lr()[0] == pytest.approx(expected[step], rel=1e-4)


@every_pair
def test_parameter_groups_keep_their_ratios(schedule, make_optimizer, task):
    optimizer, lr = build(schedule, make_optimizer, task, (0.2, 0.05))
    for step in range(STEPS):
        train(task, optimizer, lr, [step])
        first, second = lr.get_last_lr()
        assert second == pytest.approx(first / 4, rel=1e-12)


@every_pair
def test_tensor_lrs_equal_float_lrs(schedule, make_optimizer, on_device):
    """Weights and LRs in double precision, so that both trainings stay together."""
    both = []
    for kind in (float, lambda lr: torch.tensor(lr, dtype=torch.float64)):
        task = Task()
        task.model.double()
        task.inputs = task.inputs.double()
        optimizer, lr = build(schedule, make_optimizer, task, (kind(0.2), kind(0.05)))
        both.append((train(task, optimizer, lr, range(STEPS)), numbers(lr.status())))
        assert all(type(group["lr"]) is type(kind(0.2)) for group in optimizer.param_groups)
    assert both[1][0] == pytest.approx(both[0][0], rel=1e-4)
    assert both[1][1] == pytest.approx(both[0][1], rel=1e-4, nan_ok=True)
