"""LearnedLR's rules, one by one: ranges, phases, horizons, groups, precision, arguments."""

import io
import math

import numpy as np
import pytest
import torch
from engines import LOSSES, lrs_for, sgd
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import LRScheduler

from mlrsnet import Card, Gamma, LearnedLR, LSTMNet, MLPNet, Schedule, ScheduleError
from mlrsnet.nets import predict

PARAMETERS = [torch.nn.Parameter(torch.ones(2))]


def test_it_is_a_torch_scheduler(paper):
    lr = LearnedLR(sgd(), paper, total_steps=3, num_classes=5)
    assert isinstance(lr, LRScheduler)
    assert lr.base_lrs == [0.1]
    assert lr.get_last_lr() == [0.1]


def test_the_lrs_are_gamma_times_the_simulated_factors(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    gamma = Gamma()(LOSSES[0], 5)
    np.testing.assert_allclose(lrs_for(lr, LOSSES), paper.simulate(LOSSES, gamma), rtol=1e-5)


def test_a_schedule_that_knows_the_horizon_is_given_it(horizon, kind):
    lr = LearnedLR(sgd(kind()), horizon, total_steps=9, num_classes=5)
    np.testing.assert_allclose(lrs_for(lr, LOSSES), horizon.simulate(LOSSES, num_classes=5), rtol=1e-5)


def test_text_uses_vocabulary_and_perplexity(paper, kind):
    text = paper.for_text()
    lr = LearnedLR(sgd(kind(20.0)), text, total_steps=9, num_classes=10_000)
    losses = [9.2, 9.0, 8.0, 7.0, 6.5, 6.0, 5.5, 5.0, 4.8]
    gamma = Gamma(statistic="perplexity")(9.2, 10_000)
    assert gamma > 40
    np.testing.assert_allclose(lrs_for(lr, losses), text.simulate(losses, gamma, num_classes=10_000), rtol=1e-5)


def test_gamma_is_computed_again_at_each_phase_where_the_card_says_so(kind):
    torch.manual_seed(0)
    nets = [LSTMNet(6) for _ in range(3)]
    schedule = Schedule(nets, Card(gamma=Gamma("per-phase")))
    lr = LearnedLR(sgd(kind()), schedule, total_steps=9, num_classes=5)
    gammas = np.repeat([Gamma()(LOSSES[t], 5) for t in (0, 3, 6)], 3)
    np.testing.assert_allclose(lrs_for(lr, LOSSES), gammas * schedule.simulate(LOSSES), rtol=1e-5)


def test_a_phase_that_starts_on_a_tiny_loss_keeps_the_range(kind):
    torch.manual_seed(0)
    schedule = Schedule([LSTMNet(6), LSTMNet(6)], Card(gamma=Gamma("per-phase")))
    lr = LearnedLR(sgd(kind()), schedule, total_steps=4, num_classes=5)
    losses = [1.6, 1.0, 0.01, 0.01]  # 0.01 * 5 < 1: the formula would be negative
    np.testing.assert_allclose(lrs_for(lr, losses), Gamma()(1.6, 5) * schedule.simulate(losses), rtol=1e-5)


@pytest.mark.parametrize("policy", ["initial", "per-phase"])
def test_a_gamma_that_is_renewed_where_a_phase_begins_holds_for_that_phase(kind, policy):
    """The authors' program: another loss than the batch's, and the size of the formula, negative where f C < 1."""
    torch.manual_seed(0)
    schedule = Schedule([LSTMNet(6) for _ in range(3)], Card(gamma=Gamma(policy)))
    lr = LearnedLR(sgd(kind()), schedule, total_steps=9, num_classes=5)
    means, renewed, used = iter((1.7, 0.9, 0.02)), [], []
    for step, loss in enumerate(LOSSES):
        if lr.begins_phase:
            lr.renew_gamma(next(means))
            renewed.append(step)
            assert not lr.begins_phase
        used += lrs_for(lr, [loss])
    assert renewed == [0, 3, 6]
    gammas = [abs(math.sqrt(f) * math.log(5 * f)) / (4 * 5**0.25) for f in (1.7, 0.9, 0.02)]
    np.testing.assert_allclose(used, np.repeat(gammas, 3) * schedule.simulate(LOSSES), rtol=1e-5)


def test_a_renewed_gamma_is_in_the_state_of_a_resumed_run(kind):
    torch.manual_seed(0)
    schedule = Schedule([LSTMNet(6) for _ in range(2)], Card(gamma=Gamma("per-phase")))

    def begun():
        return LearnedLR(sgd(kind()), schedule, total_steps=4, num_classes=5)

    first, second = begun(), begun()
    lrs_for(first, [1.6, 1.5])
    first.renew_gamma(torch.tensor(0.05))
    second.load_state_dict(first.state_dict())
    assert not second.begins_phase
    assert lrs_for(second, [1.2, 1.1]) == lrs_for(first, [1.2, 1.1])
    assert first.status()["gamma"] == pytest.approx(-math.sqrt(0.05) * math.log(0.25) / (4 * 5**0.25), rel=1e-6)


@pytest.mark.parametrize("loss", [0.0, -1.0, 0.2, math.nan, math.inf])
def test_a_loss_without_a_range_cannot_renew_it(loss, kind):
    lr = LearnedLR(sgd(kind()), Schedule(LSTMNet(6)), total_steps=4, num_classes=5)
    lrs_for(lr, [1.6])
    before = lr.status()
    with pytest.raises(ValueError, match="loss"):
        lr.renew_gamma(loss)
    assert lr.status() == before


def test_a_range_that_comes_from_no_loss_cannot_be_renewed():
    lr = LearnedLR(sgd(0.1), "universal-2", total_steps=4)
    with pytest.raises(ValueError, match=r"gamma can only be renewed where it comes from a loss.*got 'measured'"):
        lr.renew_gamma(1.0)


@pytest.mark.parametrize("total", [1, 2, 3, 4, 5, 7, 10])
def test_phases_switch_at_the_right_step_for_any_horizon(kind, total):
    nets = [MLPNet(2) for _ in range(3)]
    for index, net in enumerate(nets):
        net.out.weight.data.zero_()
        net.out.bias.data.fill_(float(index))
    schedule = Schedule(nets, Card(gamma=Gamma("fixed", value=1.0)))
    lr = LearnedLR(sgd(kind()), schedule, total_steps=total)
    expected = [1 / (1 + math.exp(-min(3 * t // total, 2))) for t in range(total + 3)]  # the last phase continues
    used = lrs_for(lr, [1.0] * total)
    with pytest.warns(
        UserWarning, match=f"step {total + 1} is past total_steps={total}, which counts optimizer steps"
    ) as told:
        used += lrs_for(lr, [1.0] * 3)
    assert len(told) == 1
    assert used == pytest.approx(expected, rel=1e-5)


def test_extend_moves_the_phases_from_then_on(kind):
    nets = [MLPNet(2) for _ in range(2)]
    for index, net in enumerate(nets):
        net.out.weight.data.zero_()
        net.out.bias.data.fill_(float(index))
    schedule = Schedule(nets, Card(gamma=Gamma("fixed", value=1.0)))
    lr = LearnedLR(sgd(kind()), schedule, total_steps=4)
    lrs_for(lr, [1.0] * 2)
    lr.extend(8)
    used = lrs_for(lr, [1.0] * 6)
    assert used == pytest.approx([0.5, 0.5] + [1 / (1 + math.exp(-1))] * 4, rel=1e-5)
    assert lr.total_steps == 8
    with pytest.raises(ValueError, match="total_steps must be a whole number >= 8, got 7: a horizon can only grow"):
        lr.extend(7)


@pytest.mark.parametrize("times", [2, 10])
def test_a_prolonged_schedule_goes_on_alike_on_host_and_device(times):
    losses = [2.3 * 0.99**step for step in range(80)]
    found = []
    for new_lr in (lambda: 0.1, lambda: torch.tensor(0.1)):
        lr = LearnedLR(sgd(new_lr()), "universal", total_steps=100)
        lrs_for(lr, losses)
        lr.extend(times * 100)
        found.append([float(used) for used in lrs_for(lr, losses)])
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert all(0.1 < used < 5 for used in found[0])


def test_scale_and_bounds_apply_to_the_main_group_and_ratios_stay(paper, kind):
    def build(**options):
        sizes = {0.0: 3, 0.1: 2, 0.4: 1}
        groups = [{"params": [torch.nn.Parameter(torch.ones(n))], "lr": kind(lr)} for lr, n in sizes.items()]
        lr = LearnedLR(SGD(groups, lr=0.1), paper, total_steps=9, num_classes=5, **options)
        lr.step(1.6)
        return [float(x) for x in lr.get_last_lr()]

    plain, halved = build(), build(scale=0.5)
    assert halved == pytest.approx([x / 2 for x in plain])
    assert plain[0] == 0
    assert build(max_lr=1e-3) == pytest.approx([0, 1e-3, 4e-3])
    assert build(min_lr=5.0) == pytest.approx([0, 5.0, 20.0])


def test_a_group_added_later_works(paper, kind):
    optimizer = sgd(kind(0.1))
    lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    lr.step(1.6)
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.3})
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
    lr.step(1.5)
    first, second, third = (float(x) for x in lr.get_last_lr())
    assert second == pytest.approx(3 * first, rel=1e-6)
    assert third == pytest.approx(first, rel=1e-6)
    assert [type(group["lr"]) for group in optimizer.param_groups] == [type(kind())] * 3


def test_groups_that_share_a_default_tensor_get_their_own(paper):
    shared = torch.tensor(0.1)
    optimizer = SGD(
        [{"params": [p]} for p in (torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1)))], lr=shared
    )
    optimizer.param_groups[1]["initial_lr"] = 0.2
    lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    lr.step(torch.tensor(1.6))
    first, second = lr.get_last_lr()
    assert second.item() == pytest.approx(2 * first.item())


def test_returned_lrs_are_copies(paper, kind):
    optimizer = sgd(kind())
    lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    lr.step(1.6)
    returned, used = lr.get_last_lr(), float(optimizer.param_groups[0]["lr"])
    returned[0] *= 0
    assert float(optimizer.param_groups[0]["lr"]) == used


def test_momentum_and_adam_scale_the_range(paper):
    def first_lr(optimizer):
        lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
        lr.step(1.6)
        return lr.get_last_lr()[0]

    plain = first_lr(sgd())
    assert first_lr(sgd(momentum=0.9)) == pytest.approx(0.1 * plain)
    assert first_lr(Adam(PARAMETERS, lr=0.1)) == pytest.approx(0.01 * plain)


def test_numpy_numbers_are_numbers(paper, kind):
    options = {
        "num_classes": np.int32(5),
        "scale": np.float32(1.0),
        "initial_loss": np.float64(1.6),
        "min_lr": np.float32(0),
    }
    lr = LearnedLR(sgd(kind()), paper, total_steps=np.int64(9), **options)
    lr.extend(np.int64(10))
    lr.step(np.float64(1.5))
    file = io.BytesIO()
    torch.save(lr.state_dict(), file)
    file.seek(0)
    assert torch.load(file, weights_only=True)["total_steps"] == 10  # numpy numbers would fail here


def test_float64_networks_and_defaults_work(kind):
    torch.manual_seed(0)
    schedule = Schedule(LSTMNet(6).double(), Card(gamma=Gamma("fixed", value=1.0)))
    expected = schedule.simulate(LOSSES)
    np.testing.assert_allclose(lrs_for(LearnedLR(sgd(kind()), schedule, total_steps=9), LOSSES), expected, rtol=1e-6)
    torch.set_default_dtype(torch.float64)
    try:
        lr = LearnedLR(sgd(kind()), schedule, total_steps=9)
        np.testing.assert_allclose(lrs_for(lr, LOSSES), expected, rtol=1e-6)
    finally:
        torch.set_default_dtype(torch.float32)


def test_coarse_networks_are_computed_in_float32_on_the_host():
    torch.manual_seed(0)
    net, card = LSTMNet(6).bfloat16(), Card(gamma=Gamma("fixed", value=1.0))
    found = lrs_for(LearnedLR(sgd(), Schedule(net, card), total_steps=9), LOSSES)
    assert found == lrs_for(LearnedLR(sgd(), Schedule(net.float(), card), total_steps=9), LOSSES)


def test_autocast_around_a_step_changes_nothing(paper, kind):
    outside = lrs_for(LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5), LOSSES)
    with torch.autocast("cpu", torch.bfloat16):
        inside = lrs_for(LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5), LOSSES)
    assert inside == outside


def test_an_endless_horizon_does_not_take_endless_memory(horizon):
    lr = LearnedLR(sgd(torch.tensor(0.1)), horizon, total_steps=10**15)
    lr.step(torch.tensor(1.6))
    assert lr.status()["step"] == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"total_steps": 0}, ValueError, "total_steps must be a whole number >= 1, got 0: optimizer steps"),
        ({"total_steps": 1.5}, ValueError, "total_steps must be a whole number >= 1, got 1.5"),
        ({"num_classes": None}, ValueError, "num_classes must be given for the schedule 'unnamed', got None"),
        ({"num_classes": 1}, ValueError, "num_classes must be a whole number >= 2, got 1"),
        ({"initial_loss": math.nan}, ValueError, "initial_loss must be a finite number, got nan"),
        ({"initial_loss": 0.01}, ValueError, "initial_loss must be a finite number > 0.2"),
        ({"scale": 0}, ValueError, "scale must be > 0, got 0"),
        ({"min_lr": -1}, ValueError, "min_lr and max_lr must satisfy"),
        ({"min_lr": 1.0, "max_lr": 0.5}, ValueError, "min_lr and max_lr must satisfy"),
        ({"max_lr": 0}, ValueError, "min_lr and max_lr must satisfy"),
        ({"on_nonfinite": "ignore"}, ValueError, "on_nonfinite must be one of hold, raise; got 'ignore'"),
        ({"schedule": "nope"}, ScheduleError, "there is no schedule named 'nope'"),
        (
            {"schedule": None},
            TypeError,
            "schedule must be a name, the path of a .safetensors file or a Schedule, got None",
        ),
        ({"process_group": "x"}, TypeError, "process_group must be a ProcessGroup, None or False, got 'x'"),
        ({"optimizer": PARAMETERS}, TypeError, "optimizer must be a torch.optim.Optimizer, got list"),
        ({"optimizer": SGD(PARAMETERS, lr=0.1, momentum=1.0)}, ValueError, r"momentum must be in \[0, 1\)"),
    ],
)
def test_a_bad_argument_is_named(paper, kind, options, error, message):
    arguments = {"optimizer": sgd(kind()), "schedule": paper, "total_steps": 9, "num_classes": 5, **options}
    with pytest.raises(error, match=message):
        LearnedLR(arguments.pop("optimizer"), arguments.pop("schedule"), **arguments)


def test_the_default_schedule_needs_nothing_else():
    lr = LearnedLR(sgd(), total_steps=9)  # nothing else
    assert lr.schedule.card.name == "universal-2"
    for loss in (2.0, 1.5, 1.0):
        lr.step(loss)
        assert 0 < lr.get_last_lr()[0] < 20


def test_a_network_of_ones_own_works(kind):
    class Constant(MLPNet):
        def forward(self, features, state):
            return 0.25 * torch.ones_like(features[..., 0]), state

    schedule = Schedule(Constant(2), Card(gamma=Gamma("fixed", value=2.0)))
    lr = LearnedLR(sgd(kind()), schedule, total_steps=9)
    assert lrs_for(lr, [1.0, 2.0]) == [0.5, 0.5]


def test_predict_is_what_schedules_are_made_of(horizon):
    factor, _ = predict(horizon.net, torch.tensor(0.7), 0.5, horizon.net.initial_state())
    assert 0 < factor < 0.5
