"""The losses LearnedLR gets: observed ones, the first one, non-finite ones, and values that are no losses."""

import math
import warnings

import numpy as np
import pytest
import torch
from cases import Task, weight_with_gradient
from engines import LOSSES, lrs_for, sgd
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import SGD

from mlrsnet import Card, Gamma, LearnedLR, LSTMNet, MLPNet, Schedule


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


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_holds_everything(horizon, kind, bad):
    lr, clean = (LearnedLR(sgd(kind()), horizon, total_steps=9, num_classes=5) for _ in range(2))
    with pytest.warns(UserWarning, match="a loss was not finite") as record:
        used = lrs_for(lr, [*LOSSES[:3], bad, bad, *LOSSES[3:7]])
        lr.report_problems()
    report = lr.status()
    expected = lrs_for(clean, LOSSES[:7])
    assert len(record) == 1
    assert used == [*expected[:3], expected[2], expected[2], *expected[3:]]
    assert (report["nonfinite"], report["step"]) == (2, 7)


def test_a_first_loss_that_is_not_finite_leaves_the_optimizer_alone(paper, kind):
    optimizer = sgd(kind(0.3))
    lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    with pytest.warns(UserWarning, match="a loss was not finite"):
        lr.step(math.nan)
        lr.report_problems()
    assert float(optimizer.param_groups[0]["lr"]) == float(kind(0.3))
    lr.step(1.6)
    assert lr.status()["initial_loss"] == pytest.approx(1.6)


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
    assert lr.status()["step"] == 9
    assert lr.status()["nonfinite"] == 0


def test_a_loss_far_outside_the_learned_range_warns_once(kind):
    torch.manual_seed(0)
    schedule = Schedule(LSTMNet(4), Card(gamma=Gamma("fixed", value=1.0), loss_range=(0.0, 2.0)))
    lr = LearnedLR(sgd(kind()), schedule, total_steps=9)
    lrs_for(lr, [2.5, 3.9])
    lr.report_problems()
    told = "far outside those that the schedule 'unnamed' was learned on, in this training 0 to 2, and its LRs may not fit: check"
    with pytest.warns(UserWarning, match=told) as record:
        lrs_for(lr, [5.0, 50.0])
        lr.report_problems()
        lr.state_dict()
    assert len(record) == 1
    assert lr.status()["outside"] == 2


@pytest.mark.parametrize(
    ("classes", "told"), [(None, "0 to 14.5.*pass num_classes=, or use"), (10, "0 to 14.5.*scaled, or use")]
)
def test_a_loss_far_outside_is_told_in_the_users_own_unit(kind, classes, told):
    """`universal` divides losses by log(classes); nobody should have to know."""
    lr = LearnedLR(sgd(kind()), "universal", total_steps=9, num_classes=classes)
    with pytest.warns(UserWarning, match=told) as record:
        lrs_for(lr, [math.log(10), 60.0])
        lr.report_problems()
    assert "-0" not in str(record[0].message)
    assert "loss range   0 to 6.28833" in lr.schedule.describe()


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
    with pytest.raises(
        ValueError, match=r"initial_loss must be > 0, got -1.0: .* divides losses by it, so this loss is"
    ):
        LearnedLR(sgd(kind()), schedule, total_steps=9, initial_loss=-1)


def test_a_given_first_loss_sets_the_range_for_fine_tuning(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5, initial_loss=1.6)
    lr.step(0.05)
    assert lr.status()["gamma"] == pytest.approx(Gamma()(1.6, 5), rel=1e-5)


def test_a_first_loss_without_a_range_is_an_error_on_the_host_and_can_be_mended(paper):
    optimizer = sgd()
    lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    with pytest.raises(ValueError, match="pass initial_loss="):
        lr.step(0.05)
    assert optimizer.param_groups[0]["lr"] == 0.1
    lr.step(1.6)
    assert lr.status()["step"] == 1


def test_a_first_loss_without_a_range_is_told_at_the_next_read_on_a_device(paper):
    optimizer = sgd(torch.tensor(0.1))
    lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    lr.step(torch.tensor(0.05))
    assert optimizer.param_groups[0]["lr"] == torch.tensor(0.1)
    with pytest.raises(ValueError, match="could not be computed from any of the 1 losses so far"):
        lr.report_problems()
    with pytest.warns(UserWarning, match="could not be computed from any of the 1 losses so far"):
        lr.state_dict()  # a checkpoint can still be written
    lr.step(torch.tensor(1.6))
    assert lr.status()["step"] == 1


def test_many_coarse_losses_are_averaged_finely(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    losses = torch.linspace(2.0, 2.6, 256).bfloat16()
    for loss in losses:
        lr.observe(loss)
    lr.step()
    assert lr.status()["initial_loss"] == pytest.approx(losses.double().mean().item(), rel=1e-6)


def test_what_was_observed_for_a_step_that_failed_is_gone_with_it(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5, on_nonfinite="raise")
    lr.observe(math.nan)
    with pytest.raises(FloatingPointError):
        lr.step(1.0)
    lr.step(2.0)
    assert lr.status()["initial_loss"] == 2.0


def test_a_loss_of_the_wrong_shape_leaves_what_was_observed(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    lr.observe(1.0)
    with pytest.raises(ValueError, match="loss must be a scalar"):
        lr.step(torch.ones(3))
    lr.step(2.0)
    assert lr.status()["initial_loss"] == 1.5


def test_observed_losses_can_be_forgotten(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    lr.observe(1.0)
    lr.discard()
    lr.step(2.0)
    assert lr.status()["initial_loss"] == 2.0


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
    report = host.status()
    assert all(0 < lr <= gamma for lr in on_host)
    assert report["nonfinite"] == sum(not math.isfinite(loss) for loss in losses)
    if all(abs(loss) < 1e38 or not math.isfinite(loss) for loss in losses):  # float32's range
        np.testing.assert_allclose(on_device, on_host, rtol=1e-3, atol=1e-9)


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


@pytest.mark.parametrize("name", ["universal", "universal-relative", "cifar10-patches"])
def test_a_schedule_that_cannot_serve_a_negative_loss_says_so_in_the_first_step(name, kind):
    lr = LearnedLR(SGD([weight_with_gradient()], lr=kind()), name, total_steps=9)
    with pytest.raises(
        ValueError, match=r"(this loss is unsuitable for it; use|or use) 'universal-2', which takes any loss"
    ):
        lr.step(-0.3)
        lr.report_problems()


@pytest.mark.parametrize("name", ["universal", "universal-relative", "cifar10-patches"])
@pytest.mark.parametrize("options", [{}, {"initial_loss": 1.0}, {"num_classes": 10}], ids=str)
def test_a_loss_that_becomes_negative_is_told_once(name, options, kind):
    lr = LearnedLR(SGD([weight_with_gradient()], lr=kind()), name, total_steps=99, **options)
    for loss in (0.2, 0.1, 0.0):
        lr.step(loss)
    lr.report_problems()  # a warning would be an error
    with pytest.warns(
        UserWarning, match=r"a loss was (negative|far outside).* use the default schedule, which"
    ) as told:
        for loss in (-0.1, -0.2, -0.3):
            lr.step(loss)
        lr.report_problems()
    assert len(told) == 1
