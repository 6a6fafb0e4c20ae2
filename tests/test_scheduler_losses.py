"""The losses LearnedLR gets: observed ones, the first one, non-finite ones, and values that are no losses."""

import math
import warnings

import numpy as np
import pytest
import torch
from cases import Task
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from steps import LOSSES, exactly, lrs_for, sgd
from torch.optim import SGD

from mlrsnet import LearnedLR, Schedule
from mlrsnet.card import Card
from mlrsnet.nets import LSTMNet, MLPNet
from mlrsnet.ranges import Fixed, Gamma

NEGATIVE = r"(this loss is unsuitable for it; use|or use) 'universal', which takes any loss"


def running(schedule, kind=float, **options):
    return LearnedLR(sgd(kind(0.1)), schedule, **{"total_steps": 9, "num_classes": 5, **options})


def first_loss(lr):
    """The loss of the one step that is taken now."""
    lr.optimizer.step()
    return lr.status()["initial_loss"]


def test_a_loss_is_used_by_the_next_step_only(paper, kind):
    lr, other = (running(paper, kind) for _ in range(2))
    lr.step(9.0)
    lr.step(1.6)  # a step was skipped: its loss is replaced
    assert first_loss(lr) == pytest.approx(1.6)
    lr.step(1.5)
    lr.optimizer.step()
    assert [float(one) for one in lr.history] == pytest.approx(lrs_for(other, [1.6, 1.5]), rel=1e-6)


def test_the_same_loss_told_again_counts_once(paper, kind):
    """Accelerate calls a scheduler's `step` once for each process."""
    lr, loss = running(paper, kind), torch.tensor(1.6)
    lr.observe(1.2)
    lr.step(loss)
    lr.step(loss)
    assert first_loss(lr) == pytest.approx(1.4)


def test_observed_losses_are_averaged_with_the_one_of_step(paper, kind):
    lr, static = running(paper, kind), torch.tensor(2.0)
    lr.observe(1.0)
    lr.observe(static)
    static.fill_(99.0)  # a buffer that is used again
    lr.step(3.0)
    assert first_loss(lr) == pytest.approx(2.0)


def test_step_without_a_loss_closes_what_was_observed(paper, kind):
    lr = running(paper, kind)
    for loss in torch.linspace(2.0, 2.6, 256).bfloat16():  # coarse losses are averaged finely
        lr.observe(loss)
    lr.step()
    lr.step()
    mean = torch.linspace(2.0, 2.6, 256).bfloat16().double().mean().item()
    assert first_loss(lr) == pytest.approx(mean, rel=1e-6)


def test_losses_of_gradients_that_are_thrown_away_can_be_forgotten(paper, kind):
    lr = running(paper, kind)
    lr.observe(1.0)
    lr.step(2.0)
    lr.observe(3.0)
    lr.discard()
    with pytest.raises(RuntimeError, match="no loss was told"):
        lr.optimizer.step()
    lr.step(4.0)
    assert first_loss(lr) == 4.0


def test_losses_that_are_forgotten_are_not_read_by_the_default(kind):
    lr, plain = (LearnedLR(sgd(kind(0.1)), total_steps=9) for _ in range(2))
    for one in (lr, plain):
        lrs_for(one, [1.0])
    lr.step(math.nan)
    lr.discard()
    assert lrs_for(lr, [None]) == lrs_for(plain, [None])
    assert exactly(lr.status()) == exactly(plain.status())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_holds_a_network(horizon, kind, bad):
    lr, clean = (running(horizon, kind) for _ in range(2))
    with pytest.warns(UserWarning, match="a loss was not finite") as record:
        used = lrs_for(lr, [*LOSSES[:3], bad, bad, *LOSSES[3:7]])
        status = lr.status()
    expected = lrs_for(clean, LOSSES[:7])
    assert len(record) == 1
    assert used == [*expected[:3], expected[2], expected[2], *expected[3:]]
    assert (status["nonfinite"], status["step"], status["progress"]) == (2, 9, pytest.approx(7 / 9))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_none_to_the_default(kind, bad):
    lr, clean = (LearnedLR(sgd(kind(0.1)), total_steps=9) for _ in range(2))
    with pytest.warns(UserWarning, match="a loss was not finite") as record:
        used = lrs_for(lr, [bad, *LOSSES[:3], bad])
        status = lr.status()
    assert used == lrs_for(clean, [None, *LOSSES[:3], None])
    assert (len(record), status["nonfinite"]) == (1, 2)


def test_a_first_loss_that_is_not_finite_leaves_the_optimizer_alone(paper, kind):
    lr = running(paper, lambda lr: kind(0.3))
    with pytest.warns(UserWarning, match="a loss was not finite"):
        assert lrs_for(lr, [math.nan]) == [float(kind(0.3))]
        lr.status()
    lr.step(1.6)
    assert first_loss(lr) == pytest.approx(1.6)


def test_nonfinite_can_raise_and_nothing_is_lost(paper, kind):
    lr = running(paper, kind, on_nonfinite="raise")
    lrs_for(lr, [1.6])
    before = exactly(lr.state_dict())
    for bad in (torch.tensor(math.nan), math.inf):
        with pytest.raises(FloatingPointError, match=r"loss must be finite with on_nonfinite='raise', got (nan|inf)"):
            lr.step(bad)
    assert exactly(lr.state_dict()) == before
    lr.observe(math.nan)
    with pytest.raises(FloatingPointError):
        lr.step(1.0)
    lrs_for(lr, [2.0])  # what was observed for a step that failed is gone with it
    assert lr.status()["nonfinite"] == 0


def test_skipped_steps_of_a_grad_scaler_are_not_counted(paper, kind):
    task = Task()
    optimizer = SGD(task.model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    losses, skipped = [], []
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
        losses += [] if skipped[-1] else [loss.item()]
    assert [step for step, was in enumerate(skipped) if was] == [0, 4]
    assert lr.history.tolist() == pytest.approx(lrs_for(running(paper), losses), rel=1e-5)
    assert (lr.status()["step"], lr.status()["nonfinite"]) == (7, 0)


def test_a_loss_far_outside_the_learned_range_warns_once(kind):
    torch.manual_seed(0)
    lr = running(Schedule(LSTMNet(4), Card(gamma=Fixed(1.0), loss_range=(0.0, 2.0))), kind)
    lrs_for(lr, [2.5, 3.9])
    lr.status()
    told = "far outside those that the schedule 'unnamed' was learned on, in this training 0 to 2, and its LRs may not fit: check"
    with pytest.warns(UserWarning, match=told) as record:
        lrs_for(lr, [5.0, 50.0])
        lr.status()
        lr.state_dict()
    assert len(record) == 1
    assert lr.status()["outside"] == 2


@pytest.mark.parametrize(
    ("classes", "told"), [(None, "0 to 14.5.*pass num_classes=, or use"), (10, "0 to 14.5.*scaled, or use")]
)
def test_a_loss_far_outside_is_told_in_the_users_own_unit(kind, classes, told):
    """`universal-lstm` divides losses by log(classes); nobody should have to know."""
    lr = running("universal-lstm", kind, num_classes=classes)
    with pytest.warns(UserWarning, match=told) as record:
        lrs_for(lr, [math.log(10), 60.0])
        lr.status()
    assert "-0" not in str(record[0].message)


def test_the_first_loss_stands_in_for_classes_and_can_be_given(kind):
    torch.manual_seed(0)
    schedule = Schedule(LSTMNet(6, loss_scale="log_classes"), Card(gamma=Fixed(1.0)))
    told = running(schedule, kind, num_classes=None, initial_loss=math.log(5))
    np.testing.assert_allclose(lrs_for(told, LOSSES), lrs_for(running(schedule, kind), LOSSES), rtol=1e-5)
    relative = schedule.simulate([loss / LOSSES[0] for loss in LOSSES], num_classes=None)
    np.testing.assert_allclose(lrs_for(running(schedule, kind, num_classes=None), LOSSES), relative, rtol=1e-5)


def test_a_given_first_loss_sets_the_range_for_fine_tuning(paper, kind):
    lr = running(paper, kind, initial_loss=1.6)
    lrs_for(lr, [0.05])
    assert lr.status()["gamma"] == pytest.approx(Gamma()(1.6, 5), rel=1e-5)


def test_a_given_first_loss_that_is_no_scale_is_named(kind):
    schedule = Schedule(MLPNet(2, loss_scale="initial"), Card(gamma=Fixed(1.0)))
    with pytest.raises(
        ValueError, match=r"initial_loss must be > 0, got -1.0: .* divides losses by it, so this loss is"
    ):
        running(schedule, kind, initial_loss=-1)


def test_a_first_loss_without_a_range_is_an_error_that_can_be_mended(paper):
    lr = running(paper)
    lr.step(0.05)
    with pytest.raises(ValueError, match="pass initial_loss="):
        lr.optimizer.step()
    assert (lr.get_last_lr(), lr.last_epoch) == ([0.1], 0)
    lr.step(1.6)
    assert first_loss(lr) == 1.6


def test_a_first_loss_without_a_range_is_told_at_the_next_look_at_a_device(paper, on_device):
    lr = running(paper, torch.tensor)
    assert lrs_for(lr, [0.05]) == [float(torch.tensor(0.1))]
    with pytest.warns(UserWarning, match=r"could not be computed from any of the 1 losses so far.*pass initial_loss="):
        lr.state_dict()
    lr.step(1.6)
    assert first_loss(lr) == pytest.approx(1.6)


def test_a_loss_of_the_wrong_shape_leaves_what_was_observed(paper, kind):
    lr = running(paper, kind)
    lr.observe(1.0)
    with pytest.raises(ValueError, match="loss must be a scalar"):
        lr.step(torch.ones(3))
    lr.step(2.0)
    assert first_loss(lr) == 1.5


finite = st.floats(allow_nan=False, allow_infinity=False)
anything = st.one_of(finite, st.none(), st.sampled_from([math.nan, math.inf, -math.inf]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(anything, min_size=1, max_size=15), st.integers(1, 12), st.sampled_from([1.0, 20.0, None]))
@example([0.0, 5e-324], 2, None)
def test_no_loss_whatever_breaks_a_training(on_device, losses, total, gamma):
    """Under a fixed range, or the default for None."""
    torch.manual_seed(0)
    net = LSTMNet(6, inputs=("loss", "progress"), sharpness=4.0, anneal="linear")
    schedule = "universal" if gamma is None else Schedule([net, net], Card(gamma=Fixed(gamma)))
    losses = [1.0 if loss is None and gamma else loss for loss in losses]
    host, device = (running(schedule, kind, total_steps=total) for kind in (float, torch.tensor))
    with warnings.catch_warnings(action="ignore"):
        used, other = lrs_for(host, losses), lrs_for(device, losses)
    assert all(0 < lr <= (gamma or 20) for lr in used)
    assert host.status()["nonfinite"] == sum(loss is not None and not math.isfinite(loss) for loss in losses)
    np.testing.assert_allclose(other, used, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (torch.ones(3), ValueError, r"loss must be a scalar, got shape \(3,\): pass loss.mean\(\)"),
        ("1.0", TypeError, "loss must be a number or a scalar tensor, got str"),
        (object(), TypeError, "loss must be a number or a scalar tensor, got object"),
    ],
)
def test_a_bad_loss_is_named(paper, loss, error, message):
    lr = running(paper)
    for call in (lr.step, lr.observe):
        with pytest.raises(error, match=message):
            call(loss)


@pytest.mark.parametrize(
    "loss", [1.6, torch.tensor(1.6), torch.tensor([1.6]), np.float32(1.6), torch.tensor(1.6).double()]
)
def test_every_form_of_a_scalar_is_a_loss(paper, kind, loss):
    lr = running(paper, kind)
    lr.step(loss)
    assert first_loss(lr) == pytest.approx(1.6, rel=1e-6)


def test_the_loss_keeps_its_graph(paper, kind):
    lr = running(paper, kind)
    weight = torch.ones(1, requires_grad=True)
    loss = (1.6 * weight).sum()
    lr.step(loss)
    loss.backward()
    assert weight.grad is not None


@pytest.mark.parametrize("name", ["universal-lstm", "cifar10-patches"])
def test_a_schedule_that_cannot_serve_a_negative_loss_says_so_in_the_first_step(name):
    lr = running(name, num_classes=None)
    lr.step(-0.3)
    with pytest.raises(ValueError, match=NEGATIVE):
        lr.optimizer.step()


@pytest.mark.parametrize("name", ["universal-lstm", "cifar10-patches"])
@pytest.mark.parametrize("options", [{"num_classes": None}, {"num_classes": None, "initial_loss": 1.0}, {}], ids=str)
def test_a_loss_that_becomes_negative_is_told_once(name, options, kind):
    lr = running(name, kind, total_steps=99, **options)
    lrs_for(lr, (0.2, 0.1, 0.0))
    lr.status()  # a warning would be an error
    with pytest.warns(
        UserWarning, match=r"a loss was (negative|far outside).* use the default schedule, which"
    ) as told:
        lrs_for(lr, (-0.1, -0.2, -0.3))
        lr.status()
    assert len(told) == 1
