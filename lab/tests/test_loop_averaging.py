"""Evaluation, at the average of the weights too, leaves a training as it was."""

import copy

import pytest
import torch
from runs import CPU, SMALL_CNN, tiny

from mlrsnet_lab import averaging
from mlrsnet_lab.stepper import Stepper


def everything(alive):
    """Copies of all that the next step depends on, and of the modes and momenta of the modules."""
    modules = list(alive.model.modules())
    modes = [(module.training, getattr(module, "momentum", None)) for module in modules]
    state = copy.deepcopy(alive.state_dict())
    return {"modes": modes, **{key: value for key, value in state.items() if key != "calibration"}}


def assert_bitwise(one, other):
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_bitwise(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_bitwise(left, right)
    else:
        assert one == other


@pytest.mark.parametrize(
    "optimizer", ["sgdm", "schedule-free-sgd", "schedule-free-adamw", "schedule-free-plus", "l-dog"]
)
def test_looking_at_the_weights_does_not_change_the_training(optimizer):
    alive = Stepper(tiny(**SMALL_CNN, optimizer=optimizer, schedule="fixed", lr=0.01), CPU)
    for _ in range(20):
        alive.step()
    before = everything(alive)
    alive.evaluate("val")
    alive.evaluate("test")
    assert_bitwise(everything(alive), before)


def test_an_evaluation_that_fails_leaves_the_training_as_it_was(monkeypatch):
    alive = Stepper(tiny(**SMALL_CNN, optimizer="schedule-free-sgd", schedule="fixed"), CPU)
    for _ in range(5):
        alive.step()
    before = everything(alive)

    def fail(model, part):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(alive.data, "evaluate", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        alive.evaluate("val")
    after = everything(alive)
    assert_bitwise({**after, "modes": 0}, {**before, "modes": 0})


def test_schedule_free_is_evaluated_at_the_average_with_batch_norms_that_saw_it(monkeypatch):
    spec = tiny(**SMALL_CNN, optimizer="schedule-free-sgd", schedule="fixed")
    alive, seen = Stepper(spec, CPU), {}
    for _ in range(30):
        alive.step()
    z = {name: alive.optimizer.state[p]["z"].clone() for name, p in alive.model.named_parameters()}
    y = {name: p.detach().clone() for name, p in alive.model.named_parameters()}
    evaluate = alive.data.evaluate

    def spy(model, part):
        seen.update(copy.deepcopy(model.state_dict()))
        return evaluate(model, part)

    monkeypatch.setattr(alive.data, "evaluate", spy)
    alive.evaluate("test")
    for name, weight in y.items():  # y = (1 - beta) z + beta x
        x = (weight - (1 - 0.9) * z[name]) / 0.9
        torch.testing.assert_close(seen[name], x, rtol=1e-4, atol=1e-6)
    assert any((seen[name] - weight).abs().max() > 1e-4 for name, weight in y.items())
    feed, means, variances = alive.data.calibration(), [], []
    for _ in range(averaging.BATCHES):
        feed.prepare()
        first = torch.conv2d(feed.batch()[0], seen["0.weight"], padding=1)
        means.append(first.mean((0, 2, 3)))
        variances.append(first.var((0, 2, 3)))
    torch.testing.assert_close(seen["1.running_mean"], torch.stack(means).mean(0), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(seen["1.running_var"], torch.stack(variances).mean(0), rtol=1e-3, atol=1e-5)


def test_l_dog_is_evaluated_at_the_average_of_its_package(monkeypatch):
    alive, path = Stepper(tiny(optimizer="l-dog", schedule="fixed", lr=1.0), CPU), []
    for _ in range(6):
        alive.step()
        path.append([weight.detach().clone() for weight in alive.model.parameters()])
    average = path[0]
    for t, weights in enumerate(path[1:], 2):
        share = 9 / (8 + t)
        average = [(1 - share) * old + share * new for old, new in zip(average, weights, strict=True)]
    seen = []
    monkeypatch.setattr(alive.data, "evaluate", lambda model, part: seen.extend(p.clone() for p in model.parameters()))
    alive.evaluate("test")
    for found, expected in zip(seen, average, strict=True):
        torch.testing.assert_close(found, expected)


def test_l_dog_ends_as_diverged_when_its_gradients_are_not_numbers():
    alive = Stepper(tiny(optimizer="l-dog", schedule="fixed", lr=1.0), CPU)
    before = [weight.detach().clone() for weight in alive.model.parameters()]
    for weight in alive.model.parameters():
        weight.grad = torch.full_like(weight, float("nan"))
    alive.optimizer.step()
    for weight, old in zip(alive.model.parameters(), before, strict=True):
        assert torch.equal(weight, old)
