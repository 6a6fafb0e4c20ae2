"""LRs that live on a GPU, served without one: nothing is read back, or every step of a training would wait for the device."""

import math

import pytest
import torch
from cases import Task
from torch import nn
from torch.optim import SGD, AdamW
from torch.utils._python_dispatch import TorchDispatchMode

from mlrsnet import LearnedLR
from mlrsnet._driver import driver_of


class NoReadBack(TorchDispatchMode):
    """Fails on every operation that would wait for a GPU."""

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        name = str(function)
        assert "_local_scalar_dense" not in name, f"{name} reads a tensor back to the host"
        assert "nonzero" not in name, f"{name} needs the host to know a size"
        return function(*arguments, **(keywords or {}))


def take_step(optimizer):
    """A step as a fused optimizer takes it on a GPU: torch's own code for a CPU reads the LR."""
    driver = driver_of(optimizer)
    with NoReadBack(), torch.no_grad():
        driver.open(optimizer)
        for group in optimizer.param_groups:
            for weight in group["params"]:
                weight.sub_(group["lr"] * weight.grad)
        driver.close(optimizer)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_step_reads_nothing_back(schedule, momentum, on_device):
    task = Task()
    optimizer = SGD(task.model.parameters(), lr=torch.tensor(0.1), momentum=momentum)
    lr = LearnedLR(optimizer, schedule, total_steps=9, num_classes=5)
    task.backward(0, optimizer)
    lr.step(torch.tensor(1.6))
    driver = driver_of(optimizer)
    driver.open(optimizer)  # the first step of all looks at the weights
    driver.close(optimizer)
    for step, loss in enumerate((1.5, math.nan, 1.2, 1.0), 1):
        told = torch.tensor(loss)
        task.backward(step, optimizer)
        with NoReadBack():
            lr.observe(told)
            lr.step(told)
            lr.step()
        take_step(optimizer)
        with NoReadBack():
            lr.get_last_lr()
            if step == 3:
                lr.extend(12)
    with pytest.warns(UserWarning, match="a loss was not finite"):
        assert lr.status()["step"] == 5


def test_a_step_that_a_fused_optimizer_may_skip_reads_nothing_back(on_device):
    """A GradScaler leaves its flag on the device."""
    task = Task()
    optimizer = AdamW(task.model.parameters(), lr=torch.tensor(0.1))
    lr = LearnedLR(optimizer, total_steps=9)
    driver = driver_of(optimizer)
    for step, skips in enumerate((0.0, 1.0, 0.0, 1.0)):
        task.backward(step, optimizer)
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0), torch.tensor(skips)
        if not step:
            driver.open(optimizer)
            driver.close(optimizer)
        else:
            take_step(optimizer)
    assert lr.status()["step"] == 2


def test_the_guard_itself_catches_a_read_back():
    with pytest.raises(AssertionError, match="reads a tensor back"), NoReadBack():
        float(torch.ones(1))


def test_whoever_looks_now_and_then_sees_each_loss_once(on_device):
    """A training that comes to nothing is told by the losses since the last look."""
    task, told = Task(), [1.6, 1.5, math.nan, 1.2, 1.0, 0.9]
    optimizer = SGD(task.model.parameters(), lr=torch.tensor(0.1))
    lr = LearnedLR(optimizer, total_steps=9)
    for step, loss in enumerate(told):
        task.backward(step, optimizer)
        lr.step(None if math.isnan(loss) else loss)
        optimizer.step()
    for looked in range(len(told)):
        since = driver_of(optimizer).numbers.losses_since(looked)
        assert since == pytest.approx(told[looked:], nan_ok=True)


class Calls(TorchDispatchMode):
    """Counts calls of ATen: on a GPU, each would be a kernel."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("make", [SGD, AdamW])
@pytest.mark.parametrize("layers", [1, 6])
def test_a_step_makes_few_calls(make, layers):
    """At most three for each large matrix, and 15 more."""
    model = nn.Sequential(*(nn.Linear(100, 100) for _ in range(layers)), nn.Linear(100, 3))
    optimizer = make(model.parameters(), lr=0.1)
    lr = LearnedLR(optimizer, total_steps=10)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 100)).square().mean()
        loss.backward()
        optimizer.step()
    driver = driver_of(optimizer)
    with Calls() as calls:
        lr.step(loss)
        driver.open(optimizer)
        driver.close(optimizer)
        lr.get_last_lr()
    assert 2 * layers <= calls.count <= 3 * layers + 15
