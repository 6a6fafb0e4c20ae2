"""What every schedule promises with every supported optimizer."""

import io

import pytest
import torch
from cases import OPTIMIZERS, SCHEDULES, Task

from mlrsnet import LearnedLR

STEPS = 12
REFUSED = [
    ("relative", "rmsprop")
]  # a relative range must know what the optimizer subtracts; it does for SGD, Adam and AdamW
PAIRS = [(schedule, name) for schedule in SCHEDULES for name in OPTIMIZERS if (schedule, name) not in REFUSED]
every_pair = pytest.mark.parametrize(("schedule", "make_optimizer"), PAIRS, indirect=True)


def build(schedule, make_optimizer, task, lrs=None, **options):
    parameters = list(task.model.parameters())
    groups = [{"params": parameters[:2]}, {"params": parameters[2:]}]
    for group, lr in zip(groups, lrs or (0.1, 0.1), strict=True):
        group["lr"] = lr
    optimizer = make_optimizer(groups)
    return optimizer, LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=5, **options)


def train(task, optimizer, lr, steps):
    used = []
    for step in steps:
        loss = task.backward(step, optimizer)
        lr.step(loss)
        used.append(lr.get_last_lr()[0])
        optimizer.step()
    return used


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@every_pair
def test_every_lr_is_finite_and_positive_and_is_the_one_used(schedule, make_optimizer, task):
    optimizer, lr = build(schedule, make_optimizer, task)
    for used in train(task, optimizer, lr, range(STEPS)):
        assert isinstance(used, float)
        assert 0 < used < float("inf")
    assert lr.get_last_lr() == [group["lr"] for group in optimizer.param_groups]
    assert torch.isfinite(task.weights()).all()


@every_pair
def test_the_state_survives_a_file(schedule, make_optimizer, task):
    optimizer, lr = build(schedule, make_optimizer, task)
    train(task, optimizer, lr, range(5))
    saved = lr.state_dict()
    _, other = build(schedule, make_optimizer, Task())
    other.load_state_dict(through_a_file(saved))
    assert all(isinstance(value, int | float | torch.Tensor) for value in saved.values())
    torch.testing.assert_close(other.state_dict(), saved, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("order", ["construct, load, load", "load optimizer, construct, load", "scheduler first"])
@every_pair
def test_a_resumed_run_equals_one_that_never_stopped(schedule, make_optimizer, order):
    whole = Task()
    expected = train(whole, *build(schedule, make_optimizer, whole, (0.1, 0.02)), range(STEPS))

    first = Task()
    optimizer, lr = build(schedule, make_optimizer, first, (0.1, 0.02))
    used = train(first, optimizer, lr, range(5))
    saved = through_a_file([first.model.state_dict(), optimizer.state_dict(), lr.state_dict()])

    second = Task(seed=9)
    second.inputs, second.labels = first.inputs, first.labels
    second.model.load_state_dict(saved[0])
    optimizer, lr = build(schedule, make_optimizer, second, (0.1, 0.02))
    if order == "load optimizer, construct, load":
        optimizer, _ = build(schedule, make_optimizer, second, (0.1, 0.02))
        optimizer.load_state_dict(saved[1])
        lr = LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=5)
        lr.load_state_dict(saved[2])
    elif order == "scheduler first":
        lr.load_state_dict(saved[2])
        optimizer.load_state_dict(saved[1])
    else:
        optimizer.load_state_dict(saved[1])
        lr.load_state_dict(saved[2])
    assert lr.get_last_lr()[0] == used[-1]
    used += train(second, optimizer, lr, range(5, STEPS))
    assert used == expected
    assert torch.equal(second.weights(), whole.weights())


@every_pair
def test_accumulated_micro_batches_equal_one_big_batch(schedule, make_optimizer):
    big, small = Task(), Task()
    big_optimizer, big_lr = build(schedule, make_optimizer, big)
    optimizer, lr = build(schedule, make_optimizer, small)
    for step in range(STEPS):
        train(big, big_optimizer, big_lr, [step])
        optimizer.zero_grad()
        for start in range(0, 16, 4):
            loss = small.loss(step, slice(start, start + 4))
            (loss / 4).backward()
            lr.observe(loss)
        lr.step()
        optimizer.step()
        assert lr.get_last_lr()[0] == pytest.approx(big_lr.get_last_lr()[0], rel=1e-4)


@every_pair
def test_parameter_groups_keep_their_ratios(schedule, make_optimizer, task):
    optimizer, lr = build(schedule, make_optimizer, task, (0.2, 0.05))
    for step in range(STEPS):
        train(task, optimizer, lr, [step])
        first, second = lr.get_last_lr()
        assert second == pytest.approx(first / 4, rel=1e-12)


@every_pair
def test_tensor_lrs_equal_float_lrs(schedule, make_optimizer):
    on_host, on_device = Task(), Task()
    optimizer, lr = build(schedule, make_optimizer, on_host, (0.2, 0.05))
    tensors = [torch.tensor(0.2), torch.tensor(0.05)]
    tensor_optimizer, tensor_lr = build(schedule, make_optimizer, on_device, tensors)
    for step in range(STEPS):
        train(on_host, optimizer, lr, [step])
        train(on_device, tensor_optimizer, tensor_lr, [step])
        for a, b in zip(lr.get_last_lr(), tensor_lr.get_last_lr(), strict=True):
            assert isinstance(b, torch.Tensor)
            assert b.item() == pytest.approx(a, rel=2e-4)
    assert tensor_lr.status()["phase"] == lr.status()["phase"]


@pytest.mark.parametrize(("schedule", "make_optimizer"), REFUSED, indirect=True)
def test_an_optimizer_that_a_schedule_cannot_serve_is_refused_with_those_it_can(schedule, make_optimizer, task):
    with pytest.raises(
        ValueError, match=r"optimizer must be torch's SGD, Adam or AdamW .*, got RMSprop: use one of them"
    ):
        build(schedule, make_optimizer, task)
