"""LearnedLR's rules, one by one: ranges, phases, horizons, groups, precision, arguments."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from cases import NETWORKS, Task, stairs
from steps import LOSSES, lrs_for, sgd, through_a_file
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import LRScheduler

from mlrsnet import LearnedLR, Schedule
from mlrsnet.card import Card
from mlrsnet.default import Default
from mlrsnet.files.storage import ScheduleError
from mlrsnet.nets import LSTMNet, MLPNet
from mlrsnet.ranges import Fixed, Gamma, PerplexityGamma, PhaseGamma

PARAMETERS = [torch.nn.Parameter(torch.ones(2))]


def test_one_line_sets_the_lr_of_every_step(kind):
    """Nothing is assigned to a name, and nothing is called."""
    task = Task()
    optimizer = AdamW(task.model.parameters(), lr=kind())
    LearnedLR(optimizer, total_steps=20)
    used = []
    for step in range(20):
        task.backward(step, optimizer)
        optimizer.step()
        used.append(float(optimizer.param_groups[0]["lr"]))
    assert used[0] < max(used)
    assert 0 < used[-1] < max(used) / 5


def test_it_is_a_torch_scheduler_and_leaves_the_lr_alone_before_the_first_step(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=3, num_classes=5)
    assert isinstance(lr, LRScheduler)
    assert lr.base_lrs == pytest.approx([0.1])
    lr.step(1.6)
    assert lr.get_last_lr() == lr._last_lr == lr.get_lr() == [kind()]
    lrs_for(lr, [1.6])
    assert lr.get_last_lr() == lr._last_lr == lr.get_lr() != [kind()]
    assert lr.last_epoch == lr._step_count == 1


def test_step_without_a_loss_is_a_no_op_wherever_and_however_often(kind):
    lr, plain = LearnedLR(sgd(kind()), total_steps=9), LearnedLR(sgd(kind()), total_steps=9)
    for _ in range(5):
        for _ in range(3):
            lr.step()
        lr.optimizer.step()
    assert lr.get_last_lr() == [kind(lrs_for(plain, [None] * 5)[-1])]
    assert lr.last_epoch == 5


def test_a_network_that_is_told_no_loss_says_what_to_call(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    lrs_for(lr, [1.6])
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"reads the loss, and no loss was told .*: call step\(loss\) before"):
            lr.optimizer.step()
    assert lrs_for(lr, [1.5])[0] > 0
    assert lr.last_epoch == 2


def test_the_lrs_are_gamma_times_the_simulated_factors(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    np.testing.assert_allclose(lrs_for(lr, LOSSES), paper.simulate(LOSSES, Gamma()(LOSSES[0], 5)), rtol=1e-5)


def test_a_schedule_that_knows_the_horizon_is_given_it(horizon, kind):
    lr = LearnedLR(sgd(kind()), horizon, total_steps=9, num_classes=5)
    np.testing.assert_allclose(lrs_for(lr, LOSSES), horizon.simulate(LOSSES, num_classes=5), rtol=1e-5)


def test_text_uses_vocabulary_and_perplexity(paper, kind):
    text = paper.for_text()
    lr = LearnedLR(sgd(kind(20.0)), text, total_steps=9, num_classes=10_000)
    losses = [9.2, 9.0, 8.0, 7.0, 6.5, 6.0, 5.5, 5.0, 4.8]
    gamma = PerplexityGamma()(9.2, 10_000)
    assert gamma > 40
    np.testing.assert_allclose(lrs_for(lr, losses), text.simulate(losses, gamma, num_classes=10_000), rtol=1e-5)


def test_gamma_is_computed_again_at_each_phase_where_the_card_says_so(kind):
    torch.manual_seed(0)
    schedule = Schedule([LSTMNet(6) for _ in range(3)], Card(gamma=PhaseGamma()))
    losses = [*LOSSES[:6], 0.01, 0.01, 0.01]  # 0.01 * 5 < 1: the formula would be negative, and the range stays
    lr = LearnedLR(sgd(kind()), schedule, total_steps=9, num_classes=5)
    gammas = np.repeat([Gamma()(losses[t], 5) for t in (0, 3, 3)], 3)
    np.testing.assert_allclose(lrs_for(lr, losses), gammas * schedule.simulate(losses), rtol=1e-5)


@pytest.mark.parametrize("total", [1, 2, 4, 5, 7])
def test_phases_switch_at_the_right_step_for_any_horizon(kind, total):
    lr = LearnedLR(sgd(kind()), stairs(0.2, 0.4, 0.6), total_steps=total)
    expected = [0.2 * (1 + min(3 * t // total, 2)) for t in range(total + 3)]  # the last phase continues
    used = lrs_for(lr, [1.0] * total)
    with pytest.warns(
        UserWarning, match=f"step {total + 1} is past total_steps={total}, which counts optimizer steps"
    ) as told:
        used += lrs_for(lr, [1.0] * 3)
    assert len(told) == 1
    assert told[0].filename.endswith("steps.py")  # the user's own line
    assert used == pytest.approx(expected, rel=1e-5)


def test_extend_moves_the_phases_from_then_on(kind):
    lr = LearnedLR(sgd(kind()), stairs(0.5, 0.7), total_steps=4)
    lrs_for(lr, [1.0] * 2)
    lr.extend(8)
    assert lrs_for(lr, [1.0] * 6) == pytest.approx([0.5, 0.5] + [0.7] * 4, rel=1e-5)
    assert lr.total_steps == 8
    with pytest.raises(
        ValueError, match="total_steps must be a whole number >= 8, got 7: a training can only get longer"
    ):
        lr.extend(7)


def test_scale_and_bounds_apply_to_the_main_group_and_ratios_stay(paper, kind):
    def build(**options):
        sizes = {0.0: 3, 0.1: 2, 0.4: 1}
        groups = [{"params": [torch.nn.Parameter(torch.ones(n))], "lr": kind(lr)} for lr, n in sizes.items()]
        lr = LearnedLR(SGD(groups, lr=0.1), paper, total_steps=9, num_classes=5, **options)
        lrs_for(lr, [1.6])
        return [float(x) for x in lr.get_last_lr()]

    plain, halved = build(), build(scale=0.5)
    assert halved == pytest.approx([x / 2 for x in plain])
    assert plain[0] == 0
    assert build(max_lr=1e-3) == pytest.approx([0, 1e-3, 4e-3])
    assert build(min_lr=5.0) == pytest.approx([0, 5.0, 20.0])


def test_a_group_added_later_works(paper, kind):
    optimizer = sgd(kind(0.1))
    lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    lrs_for(lr, [1.6])
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.3})
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
    lrs_for(lr, [1.5])
    first, second, third = (float(x) for x in lr.get_last_lr())
    assert second == pytest.approx(3 * first, rel=1e-6)
    assert third == pytest.approx(first, rel=1e-6)  # the default is still the user's 0.1


def test_a_users_tensors_stay_his_and_groups_that_share_one_get_their_own(paper, kind):
    shared = kind(0.1)
    optimizer = SGD([{"params": [torch.nn.Parameter(torch.ones(1))]} for _ in range(2)], lr=shared)
    optimizer.param_groups[1]["initial_lr"] = 0.2
    lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    lrs_for(lr, [1.6])
    first, second = (group["lr"] for group in optimizer.param_groups)
    assert float(second) == pytest.approx(2 * float(first))
    if isinstance(shared, torch.Tensor):
        assert first is shared
        assert optimizer.defaults["lr"] == kind(0.1)


def test_returned_lrs_are_copies(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    lrs_for(lr, [1.6])
    returned, used = lr.get_last_lr(), float(lr.optimizer.param_groups[0]["lr"])
    returned[0] *= 0
    assert float(lr.optimizer.param_groups[0]["lr"]) == used


def test_momentum_and_adam_scale_the_range(paper):
    def first_lr(optimizer):
        return lrs_for(LearnedLR(optimizer, paper, total_steps=9, num_classes=5), [1.6])[0]

    plain = first_lr(sgd())
    assert first_lr(sgd(momentum=0.9)) == pytest.approx(0.1 * plain)
    assert first_lr(Adam(PARAMETERS, lr=0.1)) == pytest.approx(0.01 * plain)


def test_numpy_numbers_are_numbers(paper, kind):
    options = {
        "num_classes": np.int32(5),
        "scale": np.float32(1),
        "initial_loss": np.float64(1.6),
        "min_lr": np.float32(0),
    }
    lr = LearnedLR(sgd(kind()), paper, total_steps=np.int64(9), **options)
    lr.extend(np.int64(10))
    lrs_for(lr, [np.float64(1.5)])
    assert through_a_file(lr.state_dict())["end"] == 10  # numpy's numbers would fail here


def test_float64_networks_and_defaults_work(kind):
    torch.manual_seed(0)
    schedule = Schedule(LSTMNet(6).double(), Card(gamma=Fixed(1.0)))
    expected = schedule.simulate(LOSSES)
    np.testing.assert_allclose(lrs_for(LearnedLR(sgd(kind()), schedule, total_steps=9), LOSSES), expected, rtol=1e-6)
    torch.set_default_dtype(torch.float64)
    try:
        lr = LearnedLR(sgd(kind()), schedule, total_steps=9)
        np.testing.assert_allclose(lrs_for(lr, LOSSES), expected, rtol=1e-6)
    finally:
        torch.set_default_dtype(torch.float32)


def test_coarse_networks_are_computed_in_float32(kind):
    torch.manual_seed(0)
    net, card = LSTMNet(6).bfloat16(), Card(gamma=Fixed(1.0))
    found = lrs_for(LearnedLR(sgd(kind()), Schedule(net, card), total_steps=9), LOSSES)
    assert found == lrs_for(LearnedLR(sgd(kind()), Schedule(net.float(), card), total_steps=9), LOSSES)


@pytest.mark.parametrize("name", ["paper", "default"])
def test_autocast_around_a_step_changes_nothing(paper, name, kind):
    def run():
        task = Task()
        optimizer = SGD(task.model.parameters(), lr=kind())
        lr = LearnedLR(optimizer, {"paper": paper, "default": Default()}[name], total_steps=9, num_classes=5)
        task.backward(0, optimizer)
        with torch.autocast("cpu", torch.bfloat16, enabled=inside):
            return lrs_for(lr, LOSSES)

    inside = False
    outside = run()
    inside = True
    assert run() == outside


def test_an_endless_horizon_does_not_take_endless_memory(horizon, kind):
    lr = LearnedLR(sgd(kind()), horizon, total_steps=10**15)
    lrs_for(lr, [1.6])
    assert lr.status()["step"] == 1


def test_status_says_how_far_the_training_is_and_what_is_seen(kind):
    task = Task()
    optimizer = SGD(task.model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=8, num_classes=5)
    for step in range(4):
        lr.step(task.backward(step, optimizer))
        optimizer.step()
    status = lr.status()
    assert (status["schedule"], status["step"], status["total_steps"], status["progress"]) == ("universal", 4, 8, 0.5)
    assert status["lr"] == pytest.approx(float(lr.get_last_lr()[0]))
    assert (status["matrices"], status["parameters"], status["has_norms"], status["num_classes"]) == (2, 101, False, 5)
    assert (status["share"], status["nonfinite"], status["is_trained"]) == (1.0, 0, False)
    assert 0 < status["step_length"] < 1
    assert status["step_length"] < status["distance"] < 4
    assert "batch_size" not in status
    assert repr(lr) == "LearnedLR('universal', step 4 of 8)"


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
        ({"on_stuck": "stop"}, ValueError, "on_stuck must be one of warn, raise; got 'stop'"),
        ({"schedule": "nope"}, ScheduleError, "there is no schedule named 'nope'"),
        (
            {"schedule": None},
            TypeError,
            "schedule must be a name, the path of a .safetensors file or a Schedule, got None",
        ),
        ({"process_group": "x"}, TypeError, "process_group must be a ProcessGroup, None or False, got 'x'"),
        ({"optimizer": PARAMETERS}, TypeError, "optimizer must be a torch.optim.Optimizer, got list"),
        (
            {"optimizer": SGD(PARAMETERS, lr=0.1, momentum=1.0)},
            ValueError,
            "momentum must be below 1 for a learned schedule",
        ),
        (
            {"optimizer": SGD(PARAMETERS, lr=0.1, momentum=1.0), "schedule": "universal"},
            ValueError,
            r"momentum or beta_1 must be in \[0, 1\) for the default schedule, got 1.0",
        ),
    ],
)
def test_a_bad_argument_is_named(paper, kind, options, error, message):
    arguments = {"optimizer": sgd(kind()), "schedule": paper, "total_steps": 9, "num_classes": 5, **options}
    with pytest.raises(error, match=message):
        LearnedLR(arguments.pop("optimizer"), arguments.pop("schedule"), **arguments)


def test_a_name_a_path_a_schedule_and_a_law_are_schedules(paper, tmp_path):
    paper.save(tmp_path / "s.safetensors")
    assert LearnedLR(sgd(), total_steps=9).law == LearnedLR(sgd(), "universal", total_steps=9).law == Default()
    for schedule in (paper, tmp_path / "s.safetensors", str(tmp_path / "s.safetensors")):
        found = LearnedLR(sgd(), schedule, total_steps=9, num_classes=5).law
        assert found.fingerprint() == paper.fingerprint()
    assert LearnedLR(sgd(), "universal-lstm", total_steps=9).law.name == "universal-lstm"


def test_a_network_of_ones_own_works(kind):
    class Constant(MLPNet):
        def respond(self, weights, features, memory, o):
            return 0.25 + 0 * features[..., 0], memory

    lr = LearnedLR(sgd(kind()), Schedule(Constant(2), Card(gamma=Fixed(2.0))), total_steps=9)
    assert lrs_for(lr, [1.0, 2.0]) == [0.5, 0.5]


def test_a_law_of_ones_own_works(kind):
    """One that changes what the default says."""

    @dataclass(frozen=True)
    class Halved(Default):
        def advance(self, state, seen, plan, o):
            lr, state = super().advance(state, seen, plan, o)
            return lr / 2, state

    plain, halved = LearnedLR(sgd(kind()), total_steps=9), LearnedLR(sgd(kind()), Halved(), total_steps=9)
    assert lrs_for(halved, [None] * 5) == pytest.approx([one / 2 for one in lrs_for(plain, [None] * 5)])


@pytest.mark.parametrize("name", ["paper", "mlp", "trend"])
def test_many_phases_share_one_clock_and_one_memory(name, kind):
    """The LRs of a schedule of two equal phases are those of one."""
    torch.manual_seed(1)
    one = NETWORKS[name]()
    net, card = one.net, Card(gamma=Fixed(1.0))
    single, double = (
        LearnedLR(sgd(kind()), Schedule(nets, card), total_steps=9, num_classes=5) for nets in ([net], [net, net])
    )
    assert lrs_for(single, LOSSES) == lrs_for(double, LOSSES)
