"""Optimizer updates of many trainings at once: torch's own in lockstep, one member at a time."""

import math

import pytest
import torch

from mlrsnet._optimizers import noise_scale
from mlrsnet.ranges import optimizer_scale
from mlrsnet_lab.horizon.updates import SGD, UPDATES, Adam, find

MEMBERS, SIZE, STEPS = 4, 7, 30

PAIRS = {
    "sgd": (SGD(), lambda p: torch.optim.SGD(p)),
    "heavy-ball": (SGD(0.9), lambda p: torch.optim.SGD(p, momentum=0.9)),
    "little momentum": (SGD(0.3), lambda p: torch.optim.SGD(p, momentum=0.3)),
    "nesterov": (SGD(0.9, nesterov=True), lambda p: torch.optim.SGD(p, momentum=0.9, nesterov=True)),
    "adam": (Adam(), lambda p: torch.optim.Adam(p)),
    "adam of one's own": (Adam(0.8, 0.95, 1e-3), lambda p: torch.optim.Adam(p, betas=(0.8, 0.95), eps=1e-3)),
    "adam without momentum": (Adam(0.0, 0.9), lambda p: torch.optim.Adam(p, betas=(0.0, 0.9))),
    "adamw": (Adam(decoupled=True), lambda p: torch.optim.AdamW(p)),
}
DECAYS = {"no decay": [0.0] * MEMBERS, "a decay per member": [0.0, 1e-4, 0.01, 0.3]}


def column(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype).unsqueeze(1)


def lr_at(step):
    """One LR per member, different in every step."""
    return [0.003 * 3**member * (1.1 + math.sin(step + member)) for member in range(MEMBERS)]


def gradient(weights, step):
    """Depends on the weights, so that errors would grow, and on the step."""
    return torch.sin(3 * weights + step) + 0.1 * weights


def begin(dtype=torch.float64):
    return torch.randn(MEMBERS, SIZE, generator=torch.Generator().manual_seed(0), dtype=dtype)


def together(update, decays, steps, dtype=torch.float64):
    """(steps, members, size): the weights after each step."""
    weights, path = begin(dtype), []
    state = update.begin(weights)
    for step in range(steps):
        update.apply(weights, gradient(weights, step), state, column(lr_at(step), dtype), column(decays, dtype))
        path.append(weights.clone())
    return torch.stack(path)


def one_by_one(make, decays, steps, dtype=torch.float64):
    paths = []
    for member, start in enumerate(begin(dtype)):
        weight, path = torch.nn.Parameter(start.clone()), []
        optimizer = make([weight])
        for step in range(steps):
            optimizer.param_groups[0].update(lr=lr_at(step)[member], weight_decay=decays[member])
            weight.grad = gradient(weight.detach(), step)
            optimizer.step()
            path.append(weight.detach().clone())
        paths.append(torch.stack(path))
    return torch.stack(paths, dim=1)


@pytest.mark.parametrize("decays", DECAYS.values(), ids=DECAYS)
@pytest.mark.parametrize("name", PAIRS)
def test_every_member_takes_the_steps_that_torch_would_take_alone(name, decays):
    update, make = PAIRS[name]
    found, expected = together(update, decays, STEPS), one_by_one(make, decays, STEPS)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", PAIRS)
def test_single_precision_follows_torch_to_rounding(name):
    """Two steps round about twenty times, by 6e-8 each, and Adam divides by small roots: 1e-4 is generous on any CPU."""
    update, make = PAIRS[name]
    decays = DECAYS["a decay per member"]
    found = together(update, decays, 2, torch.float32)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, one_by_one(make, decays, 2, torch.float32), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["sgd", "heavy-ball"])
def test_the_first_step_of_sgd_is_the_gradient_times_the_lr(name):
    first = together(PAIRS[name][0], DECAYS["a decay per member"], 1)[0]
    slope = gradient(begin(), 0) + column(DECAYS["a decay per member"]) * begin()
    torch.testing.assert_close(first, begin() - column(lr_at(0)) * slope, rtol=1e-13, atol=1e-13)


def test_the_first_step_of_nesterov_is_longer_by_its_momentum():
    first = together(SGD(0.9, nesterov=True), DECAYS["no decay"], 1)[0]
    expected = begin() - 1.9 * column(lr_at(0)) * gradient(begin(), 0)
    torch.testing.assert_close(first, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("decoupled", [False, True])
def test_the_first_step_of_adam_is_as_long_as_the_lr_whatever_the_gradient(decoupled):
    first = together(Adam(decoupled=decoupled), DECAYS["no decay"], 1)[0]
    expected = begin() - column(lr_at(0)) * gradient(begin(), 0).sign()
    torch.testing.assert_close(first, expected, rtol=1e-6, atol=1e-6)


def test_adamw_shrinks_the_weights_by_lr_times_decay_where_there_is_no_gradient():
    weights, decays = begin(), column(DECAYS["a decay per member"])
    update = Adam(decoupled=True)
    update.apply(weights, torch.zeros_like(weights), update.begin(weights), column(lr_at(0)), decays)
    torch.testing.assert_close(weights, begin() * (1 - column(lr_at(0)) * decays), rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", PAIRS)
def test_a_gradient_is_left_as_it_was(name):
    update, weights = PAIRS[name][0], begin()
    slope = gradient(weights, 0)
    before, state = slope.clone(), update.begin(weights)
    for _ in range(2):
        update.apply(weights, slope, state, column(lr_at(0)), column(DECAYS["a decay per member"]))
        assert torch.equal(slope, before)


@pytest.mark.parametrize("name", PAIRS)
def test_a_member_that_is_lost_leaves_the_others_alone(name):
    update, decays = PAIRS[name][0], DECAYS["a decay per member"]
    paths = []
    for value in (1.0, math.nan):
        weights = begin()
        weights[1] = value
        state = update.begin(weights)
        for step in range(5):
            update.apply(weights, gradient(weights, step), state, column(lr_at(step)), column(decays))
        paths.append(weights)
    assert paths[1][1].isnan().all()
    assert torch.equal(paths[0][[0, 2, 3]], paths[1][[0, 2, 3]])


@pytest.mark.parametrize("name", PAIRS)
def test_laws_read_of_it_what_they_read_of_torchs_optimizer(name):
    update, make = PAIRS[name]
    group = make([torch.nn.Parameter(torch.ones(1))]).param_groups[0]
    assert noise_scale(update.group) == noise_scale(group)
    assert optimizer_scale(update.group) == optimizer_scale(group)
    assert update.is_gradient == (name == "sgd")


def test_updates_of_the_same_settings_are_equal_so_that_their_tasks_train_side_by_side():
    assert len({SGD(0.9), SGD(0.9, False), UPDATES["sgdm"]}) == 1
    assert len({SGD(), SGD(0.9), SGD(0.9, True), Adam(), Adam(decoupled=True), Adam(eps=1e-6)}) == 6


@pytest.mark.parametrize(
    ("name", "update"),
    [("sgd", SGD()), ("sgdm", SGD(0.9)), ("adam", Adam()), ("adamw", Adam(decoupled=True))],
)
def test_an_optimizer_is_found_by_its_name_or_given(name, update):
    assert find(name) == find(update) == update


def test_an_unknown_name_is_told_with_the_known_ones():
    with pytest.raises(ValueError, match="optimizer must be one of sgd, sgdm, adam, adamw; got 'lion'"):
        find("lion")


@pytest.mark.parametrize("value", [-0.1, 1, 1.5])
@pytest.mark.parametrize(("make", "name"), [(SGD, "momentum"), (Adam, "beta1"), (Adam, "beta2")])
def test_a_momentum_outside_its_range_is_refused(make, name, value):
    with pytest.raises(ValueError, match=rf"{name} must be in \[0, 1\), got {value}"):
        make(**{name: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, "0.9", None, True])
@pytest.mark.parametrize(("make", "name"), [(SGD, "momentum"), (Adam, "beta1"), (Adam, "beta2"), (Adam, "eps")])
def test_a_setting_that_is_no_number_is_refused(make, name, value):
    with pytest.raises(ValueError, match=f"{name} must be a finite number, got {value!r}"):
        make(**{name: value})


@pytest.mark.parametrize("value", [0, 0.0, -1e-8])
def test_an_eps_that_could_divide_by_0_is_refused(value):
    with pytest.raises(ValueError, match=f"eps must be > 0, got {value}"):
        Adam(eps=value)


def test_nesterov_without_a_momentum_is_refused():
    with pytest.raises(ValueError, match="nesterov needs a momentum > 0, got 0: pass one"):
        SGD(nesterov=True)
