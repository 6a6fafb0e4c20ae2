"""What sets the LRs of a population: networks and the default as `LearnedLR` runs them, and tables."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector
from trainings import OPTIMIZERS, STEPS, assert_same, linear, make_data, make_tasks, train_alone, train_together

from mlrsnet import LearnedLR, Schedule
from mlrsnet.card import Card
from mlrsnet.law import Facts
from mlrsnet.nets import LSTMNet, MLPNet, TrendNet
from mlrsnet.ranges import Fixed, Gamma, PerplexityGamma
from mlrsnet_lab.horizon.policies import Factors, Networks
from mlrsnet_lab.horizon.updates import find


def double(values):
    return torch.tensor(values, dtype=torch.float64)


SINGLE = 1e-6
"""What networks read under `LearnedLR` is rounded to float32."""

LOSS_SCALES = ("none", "log_classes", "initial")
GAMMAS = {"fixed": Fixed(0.7), "initial": Gamma(), "text": PerplexityGamma()}


def make_schedules(count, gamma, loss_scale, kind=LSTMNet):
    torch.manual_seed(8)
    nets = [
        kind(6, inputs=("loss", "progress"), loss_scale=loss_scale, sharpness=3.0, anneal="linear").double()
        for _ in range(count)
    ]
    return [Schedule(net, Card(gamma=gamma)) for net in nets]


def networks(schedules):
    policy = Networks(schedules[0], len(schedules), torch.device("cpu"), dtype=torch.float64)
    policy.configure(torch.stack([parameters_to_vector(schedule.net.parameters()) for schedule in schedules]))
    return policy


def begun(policy, total_steps, classes, optimizer="sgd"):
    """The policy at the start of new trainings, and its LRs for some losses."""
    policy.update = find(optimizer)
    policy.begin(total_steps, [Facts(num_classes=count) for count in classes])
    return lambda losses: policy.lrs(torch.as_tensor(losses, dtype=torch.float64), torch.empty(0))


def lrs_of_learnedlr(make_optimizer, schedule, losses, num_classes, total_steps):
    optimizer = make_optimizer([nn.Parameter(torch.ones(1))], lr=0.1)
    lr, used = LearnedLR(optimizer, schedule, total_steps=total_steps, num_classes=num_classes), []
    for loss in losses:
        lr.step(loss)
        optimizer.step()
        used.append(lr.get_last_lr()[0])
    return used


@pytest.mark.parametrize("optimizer", ["sgd", "sgdm", "adam"])
@pytest.mark.parametrize("loss_scale", LOSS_SCALES)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_trainings_under_networks_are_those_under_learnedlr(gamma, loss_scale, optimizer):
    told, make, _ = OPTIMIZERS[optimizer]
    data = make_data()
    own = (data.targets < 3).nonzero().squeeze(1)
    task = make_tasks(data, linear, optimizer=told)[0]
    subset = replace(task, classes=[0, 1, 2], train=own[11:], val=own[:11], seed=9)
    schedules = make_schedules(6, GAMMAS[gamma], loss_scale)
    _, together = train_together([task, subset], networks(schedules))

    alone = []
    for member, schedule in enumerate(schedules):
        chosen, scheduler = (task, task, task, subset, subset, subset)[member], []

        def set_lr(optimizer, step, loss, chosen=chosen, schedule=schedule, scheduler=scheduler):
            if not step:
                settings = {"total_steps": chosen.total_steps, "num_classes": chosen.num_classes}
                scheduler.append(LearnedLR(optimizer, schedule, **settings))
            scheduler[0].step(loss)

        alone.append(train_alone(chosen, make, set_lr))
    assert_same(together, alone, SINGLE)
    assert len(together["lrs"].unique()) > 6 * (STEPS - 1)


@pytest.mark.parametrize("kind", [LSTMNet, TrendNet, MLPNet])
def test_networks_give_the_lrs_that_simulate_shows(kind):
    schedules = make_schedules(3, GAMMAS["fixed"], "log_classes", kind)
    lrs, losses = begun(networks(schedules), 9, [5]), double([1.7, 1.5, 1.3, 9.0, 1.1, 0.4, 0.02])
    found = torch.stack([lrs(loss.expand(3)).clone() for loss in losses], dim=1)
    for own, schedule in zip(found, schedules, strict=True):
        expected = schedule.simulate(losses.tolist(), GAMMAS["fixed"].value, num_classes=5, total_steps=9)
        torch.testing.assert_close(own, double(expected), rtol=1e-12, atol=0)


LOSSES = [1.7, 1.5, math.nan, 1.3, 9.0, math.inf, -math.inf, 1.1, 0.4, 0.02, 0.3, 0.2]


@pytest.mark.parametrize("kind", [LSTMNet, TrendNet, MLPNet])
@pytest.mark.parametrize("optimizer", ["sgd", "sgdm", "adam"])
@pytest.mark.parametrize("loss_scale", LOSS_SCALES)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_networks_give_the_lrs_of_learnedlr_also_after_a_nan(gamma, loss_scale, optimizer, kind):
    schedules, classes = make_schedules(4, GAMMAS[gamma], loss_scale, kind), [5, 2, 10, 3]
    make = OPTIMIZERS[optimizer][1]
    lrs = begun(networks(schedules), 12, classes, optimizer)
    losses = double(LOSSES).unsqueeze(1) * double([1.0, 0.7, 1.3, 0.9])
    found = torch.stack([lrs(row).clone() for row in losses], dim=1)
    for member in range(4):
        with pytest.warns(UserWarning, match="a loss was not finite"):
            expected = lrs_of_learnedlr(make, schedules[member], losses[:, member], classes[member], total_steps=12)
        assert found[member].tolist() == pytest.approx(expected, rel=SINGLE)
    assert torch.equal(found[:, 1], found[:, 2])
    assert torch.equal(found[:, 4], found[:, 6])


@pytest.mark.parametrize("loss_scale", LOSS_SCALES)
def test_networks_know_what_their_losses_are_divided_by(loss_scale):
    policy = networks(make_schedules(2, GAMMAS["fixed"], loss_scale))
    lrs = begun(policy, 10, [5, 10])
    for loss in (2.0, 1.0):
        lrs([loss, 3 * loss])
    expected = {"none": [1, 1], "log_classes": [math.log(5), math.log(10)], "initial": [2, 6]}[loss_scale]
    assert policy.divisors().tolist() == pytest.approx(expected)


def test_networks_begin_again_as_if_new():
    schedules = make_schedules(2, Gamma(), "initial")
    used, new = networks(schedules), networks(schedules)
    lrs = begun(used, 50, [5, 7], "adam")
    for loss in (2.0, math.nan, 1.0):
        lrs([loss, loss])
    both = [begun(policy, 4, [3, 4]) for policy in (used, new)]
    for loss in (1.5, 1.2, 0.9):
        assert torch.equal(*(lrs([loss, 1.0]) for lrs in both))


def test_a_member_whose_first_losses_are_lost_waits_with_an_lr_of_0():
    lrs = begun(networks(make_schedules(2, Gamma(), "initial")), 10, [5, 5])
    first = lrs([math.nan, 1.5]).tolist()
    assert first[0] == 0 < first[1]
    assert (lrs([1.5, 1.4]) > 0).all()


def test_a_range_that_needs_classes_is_refused_for_numbers():
    with pytest.raises(ValueError, match="num_classes must be given for the schedule"):
        begun(networks(make_schedules(1, Gamma(), "initial")), 10, [None])


def test_a_schedule_of_several_phases_is_refused():
    with pytest.raises(ValueError, match="schedule must have one phase, got 3"):
        Networks(Schedule([LSTMNet(4) for _ in range(3)]), 2, torch.device("cpu"))


def test_a_table_gives_each_member_its_peak_times_the_factor_of_the_step():
    policy = Factors(double([0.1, 0.4]), 5)
    for factors in ([1.0, 0.5, 0.25, 0.0, 0.125], [0.3, 0.2]):
        policy.configure(factors)
        lrs = begun(policy, len(factors), [5], "adam")
        for factor in factors:
            assert lrs([math.nan, 1.0]).tolist() == pytest.approx([0.001 * factor, 0.004 * factor], rel=1e-12)


def test_values_for_another_network_are_refused():
    policy = networks(make_schedules(2, GAMMAS["fixed"], "none"))
    with pytest.raises(ValueError, match=r"values must have \d+ weights per row, got 3: use the same network"):
        policy.configure(torch.zeros(2, 3))


def test_networks_in_single_precision_are_those_in_double_to_rounding():
    """One step of a network of width 6 rounds some tens of times, by 6e-8 each: 1e-4 is far above that on any CPU."""
    schedules = make_schedules(2, GAMMAS["fixed"], "log_classes")
    single = Networks(schedules[0], 2, torch.device("cpu"))
    single.configure(torch.stack([parameters_to_vector(schedule.net.parameters()) for schedule in schedules]))
    both = [begun(policy, 5, [5, 10]) for policy in (single, networks(schedules))]
    for loss in (1.6, 1.2, 0.7):
        found, expected = (lrs([loss, 2 * loss]) for lrs in both)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)
