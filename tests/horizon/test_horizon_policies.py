"""What sets the LRs of a population: networks as `LearnedLR` runs them, and tables."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector
from trainings import OPTIMIZERS, STEPS, assert_same, linear, make_data, make_tasks, train_alone, train_together

from mlrsnet import Card, Gamma, LearnedLR, LSTMNet, MLPNet, Schedule, TrendNet
from mlrsnet.horizon.policies import Networks, Table


def double(values):
    return torch.tensor(values, dtype=torch.float64)


LOSS_SCALES = ("none", "log_classes", "initial")
GAMMAS = {"fixed": Gamma("fixed", value=0.7), "initial": Gamma(), "text": Gamma(statistic="perplexity")}


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


def lrs_of_learnedlr(make_optimizer, schedule, losses, num_classes, total_steps):
    optimizer = make_optimizer([nn.Parameter(torch.ones(1))], lr=0.1)
    lr, used = LearnedLR(optimizer, schedule, total_steps=total_steps, num_classes=num_classes), []
    for loss in losses:
        lr.step(loss)
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
    assert_same(together, alone)
    assert len(together["lrs"].unique()) > 6 * (STEPS - 1)


LOSSES = [1.7, 1.5, math.nan, 1.3, 9.0, math.inf, -math.inf, 1.1, 0.4, 0.02, 0.3, 0.2]


@pytest.mark.parametrize("kind", [LSTMNet, TrendNet, MLPNet])
@pytest.mark.parametrize("optimizer", ["sgd", "sgdm", "adam"])
@pytest.mark.parametrize("loss_scale", LOSS_SCALES)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_networks_give_the_lrs_of_learnedlr_also_after_a_nan(gamma, loss_scale, optimizer, kind):
    schedules, classes = make_schedules(4, GAMMAS[gamma], loss_scale, kind), [5, 2, 10, 3]
    _, make, scale = OPTIMIZERS[optimizer]
    policy = networks(schedules)
    shares = [GAMMAS[gamma].adaptive_share(count) if optimizer == "adam" else 1.0 for count in classes]
    policy.begin(12, scale * double(shares), double(classes))
    losses = double(LOSSES).unsqueeze(1) * double([1.0, 0.7, 1.3, 0.9])
    found = torch.stack([policy.lrs(row).clone() for row in losses], dim=1)
    for member in range(4):
        with pytest.warns(UserWarning, match="a loss was not finite"):
            expected = lrs_of_learnedlr(make, schedules[member], losses[:, member], classes[member], total_steps=12)
        assert found[member].tolist() == pytest.approx(expected, rel=1e-10)
    assert torch.equal(found[:, 1], found[:, 2])
    assert torch.equal(found[:, 4], found[:, 6])


@pytest.mark.parametrize("loss_scale", LOSS_SCALES)
def test_networks_know_what_their_losses_are_divided_by(loss_scale):
    policy = networks(make_schedules(2, GAMMAS["fixed"], loss_scale))
    policy.begin(10, double([1.0, 1.0]), double([5.0, 10.0]))
    for loss in (2.0, 1.0):
        policy.lrs(double([loss, 3 * loss]))
    expected = {"none": [1, 1], "log_classes": [math.log(5), math.log(10)], "initial": [2, 6]}[loss_scale]
    assert policy.divisors().tolist() == pytest.approx(expected)


def test_networks_begin_again_as_if_new():
    schedules = make_schedules(2, Gamma(), "initial")
    used, new = networks(schedules), networks(schedules)
    used.begin(50, torch.full((2,), 0.1), torch.tensor([5.0, 7.0]))
    for loss in (2.0, math.nan, 1.0):
        used.lrs(torch.tensor([loss, loss]))
    for policy in (used, new):
        policy.begin(4, torch.ones(2), torch.tensor([3.0, 4.0]))
    for loss in (1.5, 1.2, 0.9):
        assert torch.equal(used.lrs(torch.tensor([loss, 1.0])), new.lrs(torch.tensor([loss, 1.0])))


def test_a_member_whose_first_losses_are_lost_waits_with_an_lr_of_0():
    policy = networks(make_schedules(2, Gamma(), "initial"))
    policy.begin(10, torch.ones(2), torch.tensor([5.0, 5.0]))
    first = policy.lrs(torch.tensor([math.nan, 1.5])).tolist()
    assert first[0] == 0 < first[1]
    assert (policy.lrs(torch.tensor([1.5, 1.4])) > 0).all()


def test_a_schedule_of_several_phases_is_refused():
    with pytest.raises(ValueError, match="schedule must have one phase, got 3"):
        Networks(Schedule([LSTMNet(4) for _ in range(3)]), 2, torch.device("cpu"))


def test_a_table_gives_each_member_its_peak_times_the_factor_of_the_step():
    policy = Table(double([0.1, 0.4]), 5)
    for factors in ([1.0, 0.5, 0.25, 0.0, 0.125], [0.3, 0.2]):
        policy.configure(factors)
        policy.begin(len(factors), double([1.0, 0.01]), double([5.0, 5.0]))
        for factor in factors:
            assert policy.lrs(double([math.nan, 1.0])).tolist() == pytest.approx(
                [0.1 * factor, 0.004 * factor], rel=1e-12
            )


def test_values_for_another_network_are_refused():
    policy = networks(make_schedules(2, GAMMAS["fixed"], "none"))
    with pytest.raises(ValueError, match=r"values must have \d+ weights per row, got 3: use the same network"):
        policy.configure(torch.zeros(2, 3))


def test_networks_in_single_precision_are_those_in_double_to_rounding():
    """One step of a network of width 6 rounds some tens of times, by 6e-8 each: 1e-4 is far above that on any CPU."""
    schedules = make_schedules(2, GAMMAS["fixed"], "log_classes")
    single = Networks(schedules[0], 2, torch.device("cpu"))
    single.configure(torch.stack([parameters_to_vector(schedule.net.parameters()) for schedule in schedules]))
    both = (single, networks(schedules))
    for policy in both:
        policy.begin(5, double([1.0, 0.1]), double([5.0, 10.0]))
    for loss in (1.6, 1.2, 0.7):
        found, expected = (policy.lrs(double([loss, 2 * loss])) for policy in both)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=0)
