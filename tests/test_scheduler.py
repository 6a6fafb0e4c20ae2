"""LearnedLR's own rules, one by one."""

import copy
import io
import math
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from conftest import Task
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from mlrsnet import Card, Gamma, LearnedLR, LSTMNet, MLPNet, Schedule, ScheduleError
from mlrsnet.nets import predict

PARAMETERS = [torch.nn.Parameter(torch.ones(2))]
LOSSES = [1.6, 1.5, 1.3, 1.2, 1.0, 0.9, 0.8, 0.7, 0.6]


def sgd(lr=0.1, **options):
    return SGD([torch.nn.Parameter(torch.ones(2))], lr=lr, **options)


def lrs_for(lr, losses):
    used = []
    for loss in losses:
        lr.step(loss)
        used.append(float(lr.get_last_lr()[0]))
    return used


@pytest.fixture(params=["float", "tensor"])
def kind(request):
    """Both engines."""
    return (lambda lr=0.1: lr) if request.param == "float" else (lambda lr=0.1: torch.tensor(lr))


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


@pytest.mark.parametrize("total", [1, 2, 3, 4, 5, 7, 10])
def test_phases_switch_at_the_right_step_for_any_horizon(kind, total):
    nets = [MLPNet(2) for _ in range(3)]
    for index, net in enumerate(nets):
        net.out.weight.data.zero_()
        net.out.bias.data.fill_(float(index))
    schedule = Schedule(nets, Card(gamma=Gamma("fixed", value=1.0)))
    lr = LearnedLR(sgd(kind()), schedule, total_steps=total)
    expected = [1 / (1 + math.exp(-min(3 * t // total, 2))) for t in range(total + 3)]  # the last phase holds
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
def test_a_prolonged_default_goes_on_alike_on_host_and_device(times):
    losses = [2.3 * 0.99**step for step in range(80)]
    found = []
    for kind in (lambda: 0.1, lambda: torch.tensor(0.1)):
        lr = LearnedLR(sgd(kind()), total_steps=100)
        lrs_for(lr, losses)
        lr.extend(times * 100)
        found.append([float(used) for used in lrs_for(lr, losses)])
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert all(0.1 < used < 5 for used in found[0])


def test_step_without_a_loss_changes_nothing(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    with pytest.warns(UserWarning, match=r"step\(\) was called without a loss before any was seen") as told:
        for _ in range(5):
            lr.step()
    assert len(told) == 1
    assert float(lr.get_last_lr()[0]) == pytest.approx(0.1)
    lr.step(1.6)
    before = lr.state_dict()
    for _ in range(5):
        lr.step()
    torch.testing.assert_close(lr.state_dict(), before, rtol=0, atol=0, equal_nan=True)


def test_observed_losses_are_averaged_with_the_one_of_step(paper, kind):
    lr, single = (LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5) for _ in range(2))
    lr.observe(1.0)
    lr.observe(torch.tensor(2.0))
    lr.step(3.0)
    single.step(2.0)
    assert float(lr.get_last_lr()[0]) == pytest.approx(float(single.get_last_lr()[0]), rel=1e-6)


def test_an_observed_tensor_may_be_overwritten_afterwards(paper, kind):
    lr, single = (LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5) for _ in range(2))
    static = torch.tensor(1.5)
    lr.observe(static)
    static.fill_(99.0)
    lr.step()
    single.step(1.5)
    assert float(lr.get_last_lr()[0]) == float(single.get_last_lr()[0])


def test_observed_losses_survive_a_checkpoint(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    lr.observe(1.0)
    resumed = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    resumed.load_state_dict(lr.state_dict())
    for each in (lr, resumed):
        each.step(2.0)
    assert float(lr.get_last_lr()[0]) == float(resumed.get_last_lr()[0])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_holds_everything(horizon, kind, bad):
    lr, clean = (LearnedLR(sgd(kind()), horizon, total_steps=9, num_classes=5) for _ in range(2))
    with pytest.warns(UserWarning, match="a loss was not finite") as record:
        used = lrs_for(lr, [*LOSSES[:3], bad, bad, *LOSSES[3:7]])
        report = lr.check()
    expected = lrs_for(clean, LOSSES[:7])
    assert len(record) == 1
    assert used == [*expected[:3], expected[2], expected[2], *expected[3:]]
    assert (report["nonfinite"], report["step"]) == (2, 7)


def test_a_first_loss_that_is_not_finite_leaves_the_optimizer_alone(paper, kind):
    optimizer = sgd(kind(0.3))
    lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    with pytest.warns(UserWarning, match="a loss was not finite"):
        lr.step(math.nan)
        lr.check()
    assert float(optimizer.param_groups[0]["lr"]) == float(kind(0.3))
    lr.step(1.6)
    assert lr.check()["initial_loss"] == pytest.approx(1.6)


def test_nonfinite_can_raise_and_nothing_is_lost(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5, on_nonfinite="raise")
    lr.step(1.6)
    before = lr.state_dict()
    with pytest.raises(FloatingPointError, match="loss must be finite with on_nonfinite='raise', got nan"):
        lr.step(torch.tensor(math.nan))
    torch.testing.assert_close(lr.state_dict(), before, rtol=0, atol=0)


def test_skipped_steps_of_a_grad_scaler_do_not_disturb_the_state(paper):
    task = Task()
    optimizer = SGD(task.model.parameters(), lr=0.1)
    lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    skipped = []
    for step in range(9):
        loss = task.loss(step)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if step in (0, 4):  # an overflow in the scaled gradients
            next(task.model.parameters()).grad.fill_(math.inf)
        lr.step(loss)
        before = task.weights()
        scaler.step(optimizer)
        scaler.update()
        skipped.append(torch.equal(task.weights(), before))
        assert 0 < lr.get_last_lr()[0] < 1
    assert [step for step, was in enumerate(skipped) if was] == [0, 4]
    assert lr.check()["step"] == 9
    assert lr.check()["nonfinite"] == 0


def test_a_loss_far_outside_the_learned_range_warns_once(kind):
    torch.manual_seed(0)
    schedule = Schedule(LSTMNet(4), Card(gamma=Gamma("fixed", value=1.0), loss_range=(0.0, 2.0)))
    lr = LearnedLR(sgd(kind()), schedule, total_steps=9)
    lrs_for(lr, [2.5, 3.9])
    lr.check()
    with pytest.warns(UserWarning, match=r"far outside \[0, 2\], where the schedule 'unnamed' was learned") as record:
        lrs_for(lr, [5.0, 50.0])
        lr.check()
        lr.state_dict()
    assert len(record) == 1
    assert lr.check()["outside"] == 2


def test_scale_and_bounds_apply_to_the_first_group_and_ratios_stay(paper, kind):
    def build(**options):
        groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": kind(lr)} for lr in (0.0, 0.1, 0.4)]
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


def test_the_first_loss_stands_in_for_classes_and_can_be_given(kind):
    torch.manual_seed(0)
    schedule = Schedule(LSTMNet(6, loss_scale="log_classes"), Card(gamma=Gamma("fixed", value=1.0)))
    told = LearnedLR(sgd(kind()), schedule, total_steps=9, initial_loss=math.log(5))
    known = LearnedLR(sgd(kind()), schedule, total_steps=9, num_classes=5)
    guessed = LearnedLR(sgd(kind()), schedule, total_steps=9)
    np.testing.assert_allclose(lrs_for(told, LOSSES), lrs_for(known, LOSSES), rtol=1e-5)
    relative = schedule.simulate([loss / LOSSES[0] for loss in LOSSES], num_classes=None)
    np.testing.assert_allclose(lrs_for(guessed, LOSSES), relative, rtol=1e-5)


def test_a_given_first_loss_that_is_no_scale_is_named(kind):
    schedule = Schedule(MLPNet(2, loss_scale="initial"), Card(gamma=Gamma("fixed", value=1.0)))
    with pytest.raises(ValueError, match=r"initial_loss must be > 0, got -1.0: this schedule divides losses by it"):
        LearnedLR(sgd(kind()), schedule, total_steps=9, initial_loss=-1)


def test_a_given_first_loss_sets_the_range_for_fine_tuning(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5, initial_loss=1.6)
    lr.step(0.05)
    assert lr.check()["gamma"] == pytest.approx(Gamma()(1.6, 5), rel=1e-5)


def test_a_first_loss_without_a_range_is_an_error_on_the_host_and_can_be_mended(paper):
    optimizer = sgd()
    lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    with pytest.raises(ValueError, match="pass initial_loss="):
        lr.step(0.05)
    assert optimizer.param_groups[0]["lr"] == 0.1
    lr.step(1.6)
    assert lr.check()["step"] == 1


def test_a_first_loss_without_a_range_is_told_at_the_next_read_on_a_device(paper):
    optimizer = sgd(torch.tensor(0.1))
    lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    lr.step(torch.tensor(0.05))
    assert optimizer.param_groups[0]["lr"] == torch.tensor(0.1)
    with pytest.raises(ValueError, match="could not be computed from any of the 1 losses so far"):
        lr.check()
    with pytest.warns(UserWarning, match="could not be computed from any of the 1 losses so far"):
        lr.state_dict()  # a checkpoint is still written
    lr.step(torch.tensor(1.6))
    assert lr.check()["step"] == 1


def test_many_coarse_losses_are_averaged_finely(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    losses = torch.linspace(2.0, 2.6, 256).bfloat16()
    for loss in losses:
        lr.observe(loss)
    lr.step()
    assert lr.check()["initial_loss"] == pytest.approx(losses.double().mean().item(), rel=1e-6)


def test_what_was_observed_for_a_step_that_failed_is_gone_with_it(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5, on_nonfinite="raise")
    lr.observe(math.nan)
    with pytest.raises(FloatingPointError):
        lr.step(1.0)
    lr.step(2.0)
    assert lr.check()["initial_loss"] == 2.0


def test_a_loss_of_the_wrong_shape_leaves_what_was_observed(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    lr.observe(1.0)
    with pytest.raises(ValueError, match="loss must be a scalar"):
        lr.step(torch.ones(3))
    lr.step(2.0)
    assert lr.check()["initial_loss"] == 1.5


def test_observed_losses_can_be_forgotten(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    lr.observe(1.0)
    lr.forget()
    lr.step(2.0)
    assert lr.check()["initial_loss"] == 2.0


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
    assert torch.load(file, weights_only=True)["total_steps"] == 10  # which numbers of numpy do not survive


def test_the_first_state_brings_the_first_lr_back(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    first = lr.state_dict()
    lr.step(1.6)
    lr.load_state_dict(first)
    assert float(lr.get_last_lr()[0]) == float(kind())


def test_a_warning_points_at_the_users_line_and_is_not_repeated_after_resuming(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    with pytest.warns(UserWarning, match="a loss was not finite") as record:
        lr.step(math.nan)
        saved = lr.state_dict()
    assert record[0].filename == __file__
    resumed = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    resumed.load_state_dict(saved)
    resumed.step(1.6)
    resumed.check()
    assert len(record) == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda lr: pickle.loads(pickle.dumps(lr))])
def test_a_copied_scheduler_goes_on_by_itself(paper, kind, copied):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    lrs_for(lr, LOSSES[:3])
    twin = copied(lr)
    assert lrs_for(twin, LOSSES[3:]) == lrs_for(lr, LOSSES[3:])
    assert twin.check() == lr.check()
    assert float(twin.optimizer.param_groups[0]["lr"]) == float(lr.optimizer.param_groups[0]["lr"])


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
    net = LSTMNet(6).bfloat16()
    lr = LearnedLR(sgd(), Schedule(net, Card(gamma=Gamma("fixed", value=1.0))), total_steps=9)
    np.testing.assert_allclose(lrs_for(lr, LOSSES), Schedule(net.float()).simulate(LOSSES), rtol=1e-6)


def test_autocast_around_a_step_changes_nothing(paper, kind):
    outside = lrs_for(LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5), LOSSES)
    with torch.autocast("cpu", torch.bfloat16):
        inside = lrs_for(LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5), LOSSES)
    assert inside == outside


@pytest.mark.parametrize("order", ["optimizer first", "scheduler first", "construct last"])
@pytest.mark.parametrize("make", [lambda p, lr: SGD(p, lr=lr, momentum=0.9), lambda p, lr: Adam(p, lr=lr)])
def test_tensor_lrs_resume_bit_for_bit_in_every_order(paper, make, order):
    def build(task):
        return make(task.model.parameters(), torch.tensor(0.1))

    def schedule_for(optimizer):
        return LearnedLR(optimizer, paper, total_steps=12, num_classes=5)

    def train(task, optimizer, lr, steps):
        for step in steps:
            lr.step(task.backward(step, optimizer))
            optimizer.step()

    whole = Task()
    optimizer = build(whole)
    train(whole, optimizer, schedule_for(optimizer), range(12))
    task = Task()
    optimizer = build(task)
    lr = schedule_for(optimizer)
    train(task, optimizer, lr, range(5))
    file = io.BytesIO()
    torch.save([optimizer.state_dict(), lr.state_dict()], file)
    file.seek(0)
    of_optimizer, of_lr = torch.load(file, weights_only=True)
    optimizer = build(task)
    if order == "construct last":
        optimizer.load_state_dict(of_optimizer)
        lr = schedule_for(optimizer)
        lr.load_state_dict(of_lr)
    else:
        lr = schedule_for(optimizer)
        pair = [(optimizer, of_optimizer), (lr, of_lr)]
        for thing, state in pair if order == "optimizer first" else reversed(pair):
            thing.load_state_dict(state)
    train(task, optimizer, lr, range(5, 12))
    assert torch.equal(task.weights(), whole.weights())


def test_an_endless_horizon_does_not_take_endless_memory(horizon):
    lr = LearnedLR(sgd(torch.tensor(0.1)), horizon, total_steps=10**15)
    lr.step(torch.tensor(1.6))
    assert lr.check()["step"] == 1


@pytest.mark.parametrize("held", [False, True])
def test_export_lambda_replays_the_run_exactly(paper, kind, held):
    def two_groups():
        return SGD([{"params": [torch.nn.Parameter(torch.ones(1))], "lr": kind(lr)} for lr in (0.1, 0.03)], lr=0.1)

    lr = LearnedLR(two_groups(), paper, total_steps=9, num_classes=5)
    losses = [*LOSSES[:4], math.nan, *LOSSES[4:]] if held else LOSSES
    with warnings.catch_warnings(action="ignore"):
        used = []
        for loss in losses:
            lr.step(loss)
            used.append([float(x) for x in lr.get_last_lr()])
    optimizer = two_groups()
    replay = lr.export_lambda(optimizer)
    assert type(replay) is LambdaLR
    replayed = []
    for _ in losses:
        replayed.append([float(group["lr"]) for group in optimizer.param_groups])
        optimizer.step()
        replay.step()
    assert replayed == used
    assert [float(group["lr"]) for group in optimizer.param_groups] == used[-1]  # the last one holds
    other = lr.export_lambda(two_groups())
    other.load_state_dict(replay.state_dict())
    assert other.last_epoch == len(losses)


def test_export_lambda_needs_a_run_and_the_same_groups(paper):
    lr = LearnedLR(sgd(), paper, total_steps=9, num_classes=5)
    with pytest.raises(RuntimeError, match="0 of 0 LRs are on record: run the schedule first"):
        lr.export_lambda()
    lr.step(1.6)
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))]} for _ in range(2)]
    with pytest.raises(ValueError, match="optimizer must have the 1 parameter groups of the recorded run, got 2"):
        lr.export_lambda(SGD(groups, lr=0.1))
    assert lr.export_lambda().optimizer is lr.optimizer


finite = st.floats(allow_nan=False, allow_infinity=False)
anything = st.one_of(finite, st.sampled_from([math.nan, math.inf, -math.inf]))


@given(st.lists(anything, min_size=1, max_size=15), st.integers(1, 12), st.sampled_from([1.0, 20.0]))
def test_no_loss_whatever_breaks_a_schedule_with_a_fixed_range(losses, total, gamma):
    torch.manual_seed(0)
    net = LSTMNet(6, inputs=("loss", "progress"), sharpness=4.0, anneal="linear")
    schedule = Schedule([net, net], Card(gamma=Gamma("fixed", value=gamma)))
    host = LearnedLR(sgd(), schedule, total_steps=total)
    device = LearnedLR(sgd(torch.tensor(0.1)), schedule, total_steps=total)
    with warnings.catch_warnings(action="ignore"):
        on_host, on_device = lrs_for(host, losses), lrs_for(device, losses)
        report = host.check()
    assert all(0 < lr <= gamma for lr in on_host)
    assert report["nonfinite"] == sum(not math.isfinite(loss) for loss in losses)
    if all(abs(loss) < 1e38 or not math.isfinite(loss) for loss in losses):  # float32's range
        np.testing.assert_allclose(on_device, on_host, rtol=1e-3, atol=1e-9)


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


def test_the_default_schedule_is_universal():
    lr = LearnedLR(sgd(), total_steps=9)  # nothing else
    assert lr.schedule.card.name == "universal"
    for loss in (2.0, 1.5, 1.0):
        lr.step(loss)
        assert 0 < lr.get_last_lr()[0] < 20


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (torch.ones(3), ValueError, r"loss must be a scalar, got shape \(3,\): pass loss.mean\(\)"),
        ("1.0", TypeError, "loss must be a number or a scalar tensor, got str"),
        (object(), TypeError, "loss must be a number or a scalar tensor, got object"),
    ],
)
def test_a_bad_loss_is_named(paper, loss, error, message):
    lr = LearnedLR(sgd(), paper, total_steps=9, num_classes=5)
    for call in (lr.step, lr.observe):
        with pytest.raises(error, match=message):
            call(loss)


@pytest.mark.parametrize(
    "loss", [1.6, torch.tensor(1.6), torch.tensor([1.6]), np.float32(1.6), torch.tensor(1.6).double()]
)
def test_every_form_of_a_scalar_is_a_loss(paper, kind, loss):
    lr, plain = (LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5) for _ in range(2))
    lr.step(loss)
    plain.step(1.6)
    assert float(lr.get_last_lr()[0]) == pytest.approx(float(plain.get_last_lr()[0]), rel=1e-6)


def test_the_loss_keeps_its_graph(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    weight = torch.ones(1, requires_grad=True)
    loss = (1.6 * weight).sum()
    lr.step(loss)
    loss.backward()
    assert weight.grad is not None


def test_a_foreign_state_is_refused_by_name(paper, horizon):
    lr = LearnedLR(sgd(), paper, total_steps=9, num_classes=5)
    with pytest.raises(ValueError, match=r"state_dict must be one saved by LearnedLR.state_dict"):
        lr.load_state_dict({"last_epoch": 3})
    other = LearnedLR(sgd(), horizon, total_steps=9)
    with pytest.raises(ValueError, match="was saved with another schedule"):
        lr.load_state_dict(other.state_dict())


def test_a_saved_horizon_replaces_the_new_one_with_a_warning(kind):
    first = LearnedLR(sgd(kind()), "universal", total_steps=9)
    lrs_for(first, LOSSES[:3])
    lr = LearnedLR(sgd(kind()), "universal", total_steps=20)
    with pytest.warns(UserWarning, match=r"total_steps=9, which replaces 20; call extend"):
        lr.load_state_dict(first.state_dict())
    assert lr.total_steps == 9
    assert lrs_for(lr, LOSSES[3:]) == lrs_for(first, LOSSES[3:])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"num_classes": 7}, "num_classes=5, this one has 7"),
        ({"num_classes": None}, "num_classes=5, this one has none"),
        ({"scale": 0.5}, "scale=2.0, this one has 0.5"),
        ({"min_lr": 0.1}, "min_lr=none, this one has 0.1"),
        ({"max_lr": 0.1}, "max_lr=inf, this one has 0.1"),
    ],
)
def test_a_run_resumed_with_other_arguments_is_told_that_its_lrs_change(horizon, kind, options, told):
    saved = {"num_classes": 5, "scale": 2.0}
    state = LearnedLR(sgd(kind()), horizon, total_steps=9, **saved).state_dict()
    lr = LearnedLR(sgd(kind()), horizon, total_steps=9, **{**saved, **options})
    with pytest.warns(
        UserWarning, match=f"the saved run had {told}, and gives other LRs: construct LearnedLR with"
    ) as record:
        lr.load_state_dict(state)
    assert len(record) == 1
    old = {name: value for name, value in state.items() if name not in ("num_classes", "scale", "min_lr", "max_lr")}
    lr.load_state_dict(old)  # of the first versions: not told, since not known


def test_a_run_can_move_between_float_and_tensor_lrs(horizon):
    host = LearnedLR(sgd(), horizon, total_steps=9, num_classes=5)
    lrs_for(host, LOSSES[:4])
    device = LearnedLR(sgd(torch.tensor(0.1)), horizon, total_steps=9, num_classes=5)
    device.load_state_dict(host.state_dict())
    np.testing.assert_allclose(lrs_for(device, LOSSES[4:]), lrs_for(host, LOSSES[4:]), rtol=1e-5)


def test_a_network_of_ones_own_works(kind):
    class Constant(MLPNet):
        def forward(self, features, state):
            return 0.25 * torch.ones_like(features[..., 0]), state

    schedule = Schedule(Constant(2), Card(gamma=Gamma("fixed", value=2.0)))
    lr = LearnedLR(sgd(kind()), schedule, total_steps=9)
    assert lrs_for(lr, [1.0, 2.0]) == [0.5, 0.5]


RESUME = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from conftest import Task
from mlrsnet import LearnedLR, Schedule
task = Task()
optimizer = torch.optim.SGD(task.model.parameters(), lr=0.1, momentum=0.9)
lr = LearnedLR(optimizer, sys.argv[2] + "/s.safetensors", total_steps=12, num_classes=5)
begin, end = int(sys.argv[3]), int(sys.argv[4])
if begin:
    saved = torch.load(sys.argv[2] + "/checkpoint.pt", weights_only=True)
    for thing, state in zip((task.model, optimizer, lr), saved):
        thing.load_state_dict(state)
for step in range(begin, end):
    loss = task.backward(step, optimizer)
    lr.step(loss)
    optimizer.step()
torch.save([thing.state_dict() for thing in (task.model, optimizer, lr)], sys.argv[2] + "/checkpoint.pt")
"""


def test_a_new_process_goes_on_bit_for_bit(horizon, tmp_path):
    horizon.save(tmp_path / "s.safetensors")
    script = tmp_path / "resume.py"
    script.write_text(RESUME)
    tests = str(__import__("pathlib").Path(__file__).parent)

    def run(begin, end):
        subprocess.run([sys.executable, script, tests, tmp_path, str(begin), str(end)], check=True, timeout=120)
        return torch.load(tmp_path / "checkpoint.pt", weights_only=True)

    whole = run(0, 12)
    run(0, 5)
    torch.testing.assert_close(run(5, 12), whole, rtol=0, atol=0)


def test_predict_is_what_schedules_are_made_of(horizon):
    factor, _ = predict(horizon.net, torch.tensor(0.7), 0.5, horizon.net.initial_state())
    assert 0 < factor < 0.5
