"""Trainings that will come to nothing are told early, and ordinary ones are left alone."""

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from cases import constant_nets, stairs
from sklearn.datasets import load_diabetes, load_digits
from steps import lrs_for, sgd
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.optim import SGD, AdamW

from mlrsnet import LearnedLR, Schedule
from mlrsnet._watch import VitalSigns
from mlrsnet.card import Card
from mlrsnet.ranges import Fixed

SCHEDULE = stairs(0.1)
NAN = math.nan


def decay(height):
    """A schedule that falls in a straight line from an LR, whatever the loss is."""
    return Schedule(constant_nets([0.5], anneal="linear"), Card(gamma=Fixed(2 * height)))


def signs(losses, total_steps=None):
    """What is told, and after which loss."""
    watch, told = VitalSigns(total_steps or len(losses)), []
    for step, loss in enumerate(losses):
        sign = watch.see(float(loss), total_steps or len(losses))
        if sign:
            told.append((sign.kind, step))
    return told


def noise(size, share, seed=0):
    return 1 + share * np.random.default_rng(seed).standard_normal(size)


def test_a_loss_that_never_moves_is_told_after_a_fifth_of_the_training():
    assert signs([2.3] * 1000) == [("stuck", 199)]
    assert signs([2.3] * 99) == []
    assert signs([2.3] * 10_000, 100_000) == []


def test_a_dead_network_is_told_in_spite_of_a_little_noise():
    found = [signs(2.3 * noise(1000, 0.003, seed)) for seed in range(50)]
    assert all(kind == "stuck" and step >= 199 for told in found for kind, step in told)
    assert sum(map(bool, found)) >= 40


@pytest.mark.parametrize("total", [200, 1000, 5000])
@pytest.mark.parametrize("share", [0.001, 0.005, 0.02, 0.1, 0.3])
def test_a_small_fall_under_noise_is_no_alarm(total, share):
    for seed in range(20):
        losses = 2.3 * np.linspace(1.0, 0.95, total) * np.abs(noise(total, share, seed))
        assert signs(losses) == []


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1])
def test_a_loss_that_falls_in_its_first_steps_and_then_stays_is_no_alarm(share):
    for seed in range(20):
        losses = np.abs(noise(2000, share, seed))
        losses[:5] *= 3.0
        assert signs(losses) == []


def test_losses_with_heavy_tails_are_no_alarm():
    for seed in range(50):
        spread = np.random.default_rng(seed).standard_normal(1000)
        assert signs(np.exp(spread - np.linspace(0, 0.2, 1000))) == []


def test_a_loss_that_grows_is_told_after_the_warm_up():
    assert signs([1.0] * 50 + [4.0] * 50, 400) == [("exploding", 71)]
    assert signs([1.0] * 50 + [4.0] * 49, 2000) == []  # still warming up
    assert signs([1.0] * 60 + [1e30] + [0.9] * 500, 400) == []  # one spike


def test_a_training_far_beyond_its_plan_keeps_no_more_losses_than_others_and_is_still_watched():
    """As with `total_steps=None`, whose plan grows."""
    watch = VitalSigns(1000)
    falling = 2.3 * noise(30_000, 0.02) * np.linspace(1, 0.5, 30_000)
    assert not any(watch.see(float(loss), 60_000) for loss in falling)
    assert len(watch.blocks) < 40
    assert [sign.kind for loss in [20.0] * 100 if (sign := watch.see(loss, 60_000))] == ["exploding"]


def test_losses_that_are_not_finite_ten_times_in_a_row_are_told():
    assert signs([1.0] * 5 + [NAN] * 20) == [("lost", 14)]
    assert signs(([1.0] + [math.inf] * 9) * 9) == []


@pytest.mark.parametrize("value", [0.0, -2.3])
def test_a_loss_of_0_or_below_is_never_compared(value):
    assert signs([value] * 1000) == []
    assert signs([2.3] * 50 + [value] + [2.3] * 1000) == []
    assert signs([1.0] * 50 + [value] + [50.0] * 1000) == []
    assert signs([value] * 50 + [-50 * value] * 1000) == []


def told_by(lr, losses):
    """The first warning, or the first error, and after how many losses. On a device, someone asks after each."""
    for step, loss in enumerate(losses):
        with warnings.catch_warnings(record=True, action="always") as record:
            try:
                lr.step(loss)
                lr.optimizer.step()
                lr.status()
            except RuntimeError as error:
                return f"error: {error}", step
        messages = [str(one.message) for one in record if "a loss was not finite" not in str(one.message)]
        if messages:
            return messages[0], step
    return "", len(losses)


CASES = {
    "stuck": (
        [2.3] * 150,
        "the loss does not fall: its mean over the last 20 losses is 2.3, and was 2.3 over the first 20",
        99,
    ),
    "exploding": ([1.0] * 30 + [9.0] * 100, "the loss grows: its average is", 50),
    "lost": ([1.0] * 5 + [NAN] * 20, "10 losses in a row were not finite, so the weights are probably lost", 14),
}


@pytest.mark.parametrize("case", CASES)
def test_a_user_is_warned_once_with_what_to_try(kind, case):
    losses, message, when = CASES[case]
    lr = LearnedLR(sgd(kind()), SCHEDULE, total_steps=150)
    told, step = told_by(lr, losses)
    assert told.startswith(message)
    assert "scale=" in told
    assert told.endswith("on_stuck='raise' would stop here")
    assert step == when
    assert message not in told_by(lr, losses[step + 1 :])[0]


@pytest.mark.parametrize("case", CASES)
def test_a_training_that_is_lost_can_be_stopped(kind, case):
    losses, message, when = CASES[case]
    lr = LearnedLR(sgd(kind()), SCHEDULE, total_steps=150, on_stuck="raise")
    told, step = told_by(lr, losses)
    assert told.startswith(f"error: {message}")
    assert step == when


def test_on_a_device_a_checkpoint_tells_and_none_is_refused(on_device):
    told, raises = (
        LearnedLR(sgd(torch.tensor(0.1)), SCHEDULE, total_steps=150, on_stuck=how) for how in ("warn", "raise")
    )
    for lr in (told, raises):
        lrs_for(lr, [2.3] * 150)
    with pytest.warns(UserWarning, match="the loss does not fall"):
        told.state_dict()
    raises.state_dict()
    with pytest.raises(RuntimeError, match="the loss does not fall"):
        raises.status()


def test_a_resumed_run_is_not_blamed_for_a_level_it_had_before(kind):
    lr = LearnedLR(sgd(kind()), SCHEDULE, total_steps=400)
    lrs_for(lr, np.linspace(2.0, 1.0, 100).tolist())
    resumed = LearnedLR(sgd(kind()), SCHEDULE, total_steps=400)
    resumed.load_state_dict(lr.state_dict())
    lrs_for(resumed, [1.0] * 300)
    resumed.status()


def test_another_word_for_what_to_do_is_refused():
    with pytest.raises(ValueError, match="on_stuck must be one of warn, raise; got 'stop'"):
        LearnedLR(sgd(), SCHEDULE, total_steps=9, on_stuck="stop")


def digits():
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x / 8 - 1).float(), torch.tensor(y), cross_entropy, 10


def diabetes():
    x, y = load_diabetes(return_X_y=True)
    return torch.tensor(20 * x).float(), torch.tensor((y - y.mean()) / y.std()).float()[:, None], mse_loss, 1


def train(data, make, schedule, total_steps, *, dead=False):
    """A small real training with the default schedule; the mean of the last losses."""
    torch.manual_seed(0)
    x, y, loss_of, outputs = data()
    model = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, outputs))
    if dead:
        nn.init.constant_(model[0].bias, -1e4)
    optimizer = make(model.parameters())
    lr = LearnedLR(optimizer, schedule, total_steps=total_steps, num_classes=outputs if outputs > 1 else None)
    losses = []
    for _ in range(total_steps or 400):
        batch = torch.randint(len(x), (64,))
        loss = loss_of(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        lr.step(loss)
        optimizer.step()
        losses.append(loss.item())
    lr.status()
    return np.mean(losses[:10]), np.mean(losses[-20:])


OPTIMIZERS = {
    "sgd": lambda p: SGD(p, lr=0.1),
    "adamw": lambda p: AdamW(p, lr=1e-3),
    "tensor": lambda p: SGD(p, lr=torch.tensor(0.1)),
}


@pytest.mark.parametrize("steps", [150, 400, None])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("data", [digits, diabetes])
def test_ordinary_trainings_are_left_alone(data, make, steps):
    first, last = train(data, make, "universal", steps)  # a warning would be an error
    assert last < 0.9 * first


def test_a_network_of_dead_units_is_told():
    with pytest.warns(UserWarning, match="the loss does not fall"):
        train(digits, OPTIMIZERS["sgd"], decay(1e-3), 1000, dead=True)


def deep_training(scale, seed, steps=300):
    """A network of 6 layers under steps that are far too long."""
    torch.manual_seed(seed)
    x, y, loss_of, outputs = digits()
    sizes = [64, *[64] * 5]
    layers = [part for pair in itertools.pairwise(sizes) for part in (nn.Linear(*pair), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, outputs))
    optimizer = AdamW(model.parameters())
    lr = LearnedLR(optimizer, total_steps=steps, scale=scale, on_stuck="raise")
    for step in range(steps):
        batch = torch.randint(len(x), (64,))
        loss = loss_of(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        lr.step(loss)
        try:
            optimizer.step()
        except RuntimeError as error:
            return str(error), step
    return "", steps


def test_a_network_that_a_high_lr_left_at_chance_level_is_told_before_two_thirds_of_300_steps():
    """At fifty times the steps of the law. What becomes of it depends on the CPU: it may also be lost, or explode."""
    found = [deep_training(50.0, seed) for seed in range(6)]
    assert sum("scale=" in told and step < 200 for told, step in found) >= 3


def test_weights_that_become_nan_are_told_after_ten_losses_and_not_trained_to_the_end():
    torch.manual_seed(0)
    x, y, loss_of, outputs = digits()
    model = nn.Linear(64, outputs)
    optimizer = SGD(model.parameters(), lr=0.1)
    lr = LearnedLR(optimizer, total_steps=300)
    messages = []
    for step in range(300):
        batch = torch.randint(len(x), (64,))
        loss = loss_of(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        if step == 30:
            nn.init.constant_(model.weight, NAN)
        with warnings.catch_warnings(record=True, action="always") as record:
            lr.step(loss)
            optimizer.step()
        messages += [(step, str(one.message)) for one in record]
    assert [step for step, _ in messages] == [31, 40]
    assert "10 losses in a row were not finite" in messages[1][1]
    assert "go back to a checkpoint" in messages[1][1]


@pytest.mark.parametrize("share", [0.01, 0.02])
def test_a_dead_network_is_told_in_spite_of_the_noise_of_small_batches(share):
    found = [signs(2.3 * noise(1000, share, seed)) for seed in range(50)]
    assert sum(map(bool, found)) >= 25
    assert all(step < 999 for told in found for _, step in told)


def test_a_loss_that_blew_up_and_came_back_to_where_it_began_is_told():
    calm = 2.3 * noise(300, 0.015)
    calm[3:15] *= 20
    assert [kind for kind, _ in signs(calm)] == ["stuck"]
    falling = calm * np.linspace(1.0, 0.7, 300)
    assert signs(falling) == []
