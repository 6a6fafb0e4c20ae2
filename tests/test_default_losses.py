"""What the default makes of losses, where nothing else changes: the steps are of one length, and only what is told differs."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from mlrsnet import LearnedLR

pytestmark = pytest.mark.filterwarnings("ignore:the loss (does not fall|grows)")
STEPS = 200
COURSE = [1.0] * 30 + [0.98**step for step in range(60)] + [0.6] * 30 + [0.98**step for step in range(60, 140)]
"""Falls, rises to twice where it was, and falls again."""


def trained(losses, is_trained=False, tensor_lr=False, total_steps=STEPS):
    """A schedule after these losses; None tells none."""
    weight = nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
    gain = nn.Parameter(torch.linspace(0.5, 1.5, 16)) if is_trained else nn.Parameter(torch.ones(16))
    optimizer = torch.optim.SGD([weight, gain], lr=torch.tensor(0.1, dtype=torch.float64) if tensor_lr else 0.1)
    return go_on(LearnedLR(optimizer, total_steps=total_steps), losses)


def go_on(lr, losses):
    weight = lr.optimizer.param_groups[0]["params"][0]
    for loss in losses:
        weight.grad = torch.ones_like(weight)
        lr.step(loss)
        lr.optimizer.step()
        weight.data.fill_(1.0)
    return lr


def shares(losses, **options):
    """Each LR as a share of the one without any loss."""
    return trained(losses, **options).history / trained([None] * len(losses), **options).history


@pytest.mark.parametrize("scale", [1e-3, 1e3])
@pytest.mark.parametrize("is_trained", [False, True])
def test_the_unit_of_a_loss_changes_nothing(scale, is_trained):
    plain = shares(COURSE, is_trained=is_trained)
    assert plain.min() < 0.5 * plain.max()
    assert shares([scale * loss for loss in COURSE], is_trained=is_trained) == pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize("tensor_lr", [False, True])
@pytest.mark.parametrize("unread", [None, 0.0])
def test_steps_whose_loss_is_not_told_or_0_do_not_count_as_losses(unread, tensor_lr, on_device):
    told = [0.5 if step % 5 == 0 else unread for step in range(STEPS)]
    assert shares(told, tensor_lr=tensor_lr) == pytest.approx(np.ones(STEPS))
    assert trained(told, tensor_lr=tensor_lr).status()["level"] == pytest.approx(1)


@pytest.mark.parametrize("tensor_lr", [False, True])
def test_after_a_negative_loss_none_is_read(tensor_lr, on_device):
    before = [*COURSE[:60], -0.1]
    silent = trained(before + [None] * 60, tensor_lr=tensor_lr)
    assert np.array_equal(trained([*before, *COURSE[:60]], tensor_lr=tensor_lr).history, silent.history)
    assert silent.status()["level"] < 1


def test_a_rise_just_before_a_negative_loss_does_not_shorten_all_steps_that_follow():
    used = shares([1.0] * 60 + [5.0] * 20 + [-1.0] * 20)
    assert used[79] < 0.5
    assert used[99] == pytest.approx(1, rel=1e-6)


def test_a_loss_that_has_doubled_shortens_the_steps_by_its_cube():
    """Until then a level below 1 shortens them a little, see `fall`."""
    low, high = ([1.0] * 20 + [0.25] * 100 + [last] * 79 for last in (0.25, 0.5))
    assert shares(high)[-1] / shares(low)[-1] == pytest.approx(2**0.1 / 8, rel=0.01)


def test_a_trained_network_takes_the_share_of_its_steps_by_which_its_loss_has_fallen():
    """But for the first tenth, which may be noise."""
    fallen = [1.0] * 60 + [0.2] * 100
    waits = trained(fallen, is_trained=True).history / trained(fallen).history
    usual = trained([None], is_trained=True).history[0] / trained([None]).history[0] / 0.5
    assert waits[50] == pytest.approx(0.3 * usual)
    assert waits[-1] == pytest.approx(0.5 * usual * (1 - 0.2 / 0.9), rel=0.01)


@pytest.mark.parametrize("total_steps", [20, STEPS])
def test_one_lucky_batch_is_not_taken_for_a_fall(total_steps):
    before = [1.0] * (total_steps // 2)
    assert trained([*before, 0.5], total_steps=total_steps).status()["level"] > 0.9
    told = [1.0] * 100 + [0.5]
    alike = trained(told, is_trained=True).history / trained([1.0] * 101, is_trained=True).history
    assert alike == pytest.approx(1, rel=0.01)


def test_a_fall_of_the_loss_is_believed_after_a_few_percent_of_the_training():
    """Two thirds of it after a twentieth."""
    assert trained([1.0] * 100 + [0.5] * (STEPS // 20)).status()["level"] == pytest.approx(1 - 0.5 * 2 / 3, abs=0.03)


def test_one_spike_hides_nothing_that_follows():
    """A loss counts as at most a hundred times the first."""
    usual, spiked = ([1.0] * 60 + [spike] + [1.0] * 100 for spike in (100.0, 1e30))
    assert shares(spiked) == pytest.approx(shares(usual))
    assert shares(spiked)[-1] > 0.9


@pytest.mark.parametrize("tensor_lr", [False, True])
def test_losses_that_are_not_finite_are_counted_and_change_nothing(tensor_lr, on_device):
    bad = {20, 21, 50}
    with pytest.warns(UserWarning, match="a loss was not finite"):
        lr = trained([math.inf if step in bad else loss for step, loss in enumerate(COURSE)], tensor_lr=tensor_lr)
        assert lr.status()["nonfinite"] == len(bad)
    untold = trained([None if step in bad else loss for step, loss in enumerate(COURSE)], tensor_lr=tensor_lr)
    assert np.array_equal(lr.history, untold.history)


@pytest.mark.parametrize("every", [1, 3])
def test_the_level_looks_back_over_a_share_of_the_training_however_many_losses_it_sees(every):
    def levels(total_steps):
        losses = [None if step % every else 1.0 if step < total_steps / 2 else 0.5 for step in range(total_steps)]
        lr, found = trained([], total_steps=total_steps), []
        for begin in range(0, total_steps, total_steps // 40):
            go_on(lr, losses[begin : begin + total_steps // 40])
            found.append(lr.status()["level"])
        return found

    assert levels(480) == pytest.approx(levels(4800), rel=0.1)
