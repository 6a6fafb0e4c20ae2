"""LearnedLR.anneal and total_steps=None: a training that ends earlier or later than planned still ends at a small LR."""

import copy
import math
import warnings

import pytest
import torch
from cases import SCHEDULES, Task, line, stairs
from steps import LOSSES, lrs_for, sgd, through_a_file

from mlrsnet import LearnedLR, Schedule
from mlrsnet.card import Card
from mlrsnet.nets import LSTMNet
from mlrsnet.ranges import Fixed

TOTAL = 40
pytestmark = pytest.mark.filterwarnings("ignore:the loss does not fall")  # the losses here are constant


def ones(lr, steps):
    return lrs_for(lr, [1.0] * steps)


def annealing(kind, before=10, steps=8):
    lr = LearnedLR(sgd(kind()), line(), total_steps=TOTAL)
    used = ones(lr, before)
    lr.anneal(steps)
    return lr, used


def down(height, steps):
    return pytest.approx([height * (1 - k / steps) for k in range(steps)], rel=1e-5)


@pytest.mark.parametrize("steps", [1, 2, 8, 500])
def test_the_lr_falls_in_a_straight_line_from_where_it_is_to_nearly_0(kind, steps):
    lr, used = annealing(kind, steps=steps)
    assert used[-1] == pytest.approx(0.5 * (1 - 9 / TOTAL))
    assert ones(lr, steps) == down(0.375, steps)
    assert (lr.total_steps, lr.last_epoch) == (10 + steps, 10 + steps)


def test_a_second_call_counts_from_where_it_is(kind):
    lr, _ = annealing(kind)
    ones(lr, 4)
    lr.anneal(20)
    assert lr.total_steps == 34
    assert ones(lr, 20) == down(0.1875, 20)


def test_losses_that_did_not_count_neither_shorten_the_end_nor_warn_early(kind):
    """A network's clock stands still at them; the steps that are left are the optimizer's."""
    lr = LearnedLR(sgd(kind()), line(), total_steps=TOTAL)
    with pytest.warns(UserWarning, match="a loss was not finite"):
        lrs_for(lr, [1.0] * 5 + [math.nan] * 2 + [1.0] * 5)
        lr.status()
    lr.anneal(4)
    assert lr.total_steps == 16
    assert ones(lr, 4) == down(0.375, 4)


def test_phases_follow(kind):
    lr = LearnedLR(sgd(kind()), stairs(0.2, 0.4, 0.6), total_steps=30)
    with pytest.raises(ValueError, match="steps must be a whole number >= 1, got 0"):
        lr.anneal(0)
    ones(lr, 10)
    lr.anneal(6)  # progress 1/3, then on in ninths
    assert ones(lr, 6) == pytest.approx([0.4] * 3 + [0.6] * 3)


def test_a_step_past_the_new_end_warns_once_and_keeps_the_last_lr(kind):
    lr, _ = annealing(kind)
    last = ones(lr, 8)[-1]
    with pytest.warns(
        UserWarning, match=r"step 19 is past the end that LearnedLR.anneal\(steps\) set, step 18"
    ) as told:
        assert ones(lr, 3) == [last] * 3
    assert len(told) == 1


@pytest.mark.parametrize("steps", [0, -3, 2.5, None, True])
def test_a_bad_number_of_steps_is_named_and_changes_nothing(steps):
    lr = LearnedLR(sgd(), line(), total_steps=TOTAL)
    with pytest.raises(
        ValueError, match=r"steps must be a whole number >= 1, got .*: optimizer steps from now until the end"
    ):
        lr.anneal(steps)
    assert (lr.total_steps, lr.is_annealing) == (TOTAL, False)


def test_a_schedule_that_would_not_fall_is_refused():
    lr = LearnedLR(sgd(), Schedule(LSTMNet(4)), total_steps=9, num_classes=5)
    with pytest.raises(
        ValueError, match=r"anneal\(steps\) needs a schedule that knows the progress, and 'unnamed' reads only"
    ):
        lr.anneal(3)


def test_an_end_cannot_be_extended_and_a_state_from_before_takes_it_back(kind):
    lr = LearnedLR(sgd(kind()), line(), total_steps=TOTAL)
    ones(lr, 5)
    before = lr.state_dict()
    expected = ones(lr, 5)
    lr.anneal(3)
    with pytest.raises(RuntimeError, match=r"has set the end at step 13: call anneal\(steps\) again to end later"):
        lr.extend(100)
    assert (lr.total_steps, lr.is_annealing) == (13, True)
    lr.load_state_dict(before)
    assert (lr.total_steps, lr.is_annealing) == (TOTAL, False)
    assert ones(lr, 5) == expected


@pytest.mark.parametrize("name", ["default", "horizon", "trend", "paper"])
@pytest.mark.parametrize("total", [TOTAL, None])
def test_a_run_that_ends_resumes_bit_for_bit(name, total, kind):
    if name == "paper" and total is None:
        pytest.skip("must know its end")
    torch.manual_seed(1)
    schedule = SCHEDULES[name]()

    def build():
        return LearnedLR(sgd(kind()), schedule, total_steps=total, num_classes=5)

    def resumed(lr):
        again = build()
        again.load_state_dict(through_a_file(lr.state_dict()))  # without a warning about another total_steps
        return again

    lr = build()
    lrs_for(lr, LOSSES)
    again = resumed(lr)
    assert again.has_end is (total is not None)
    for each in (lr, again):
        each.anneal(9)
    assert lrs_for(again, LOSSES[:2]) == lrs_for(lr, LOSSES[:2])
    again, twin = resumed(lr), copy.deepcopy(lr)
    assert (again.total_steps, again.is_annealing, again.has_end) == (18, True, True)
    expected = lrs_for(lr, LOSSES[2:])
    assert lrs_for(again, LOSSES[2:]) == lrs_for(twin, LOSSES[2:]) == expected


def test_a_captured_step_sees_the_new_end_in_the_buffers_that_it_has(on_device):
    lr = LearnedLR(sgd(torch.tensor(0.1)), total_steps=TOTAL)
    ones(lr, 10)
    numbers = lr._driver.numbers
    before = [tensor.data_ptr() for tensor in (*numbers.plan, numbers.lr, numbers.lrs, numbers.clock)]
    lr.anneal(8)
    assert [tensor.data_ptr() for tensor in (*numbers.plan, numbers.lr, numbers.lrs, numbers.clock)] == before
    assert [int(tensor) for tensor in numbers.plan] == [18, 10, 2**22, TOTAL]


def test_the_default_keeps_its_size_and_its_windows(kind):
    """They are for the training as it was planned: from where it is, the LR falls straight to 0."""
    lr = LearnedLR(sgd(kind()), total_steps=200)
    at = lrs_for(lr, [None] * 40)[-1] * (1 - 40 / 200) / (1 - 39 / 200)
    lr.anneal(10)
    assert lrs_for(lr, [None] * 10) == down(at, 10)


def test_without_an_end_it_warms_up_goes_on_at_one_height_and_falls_when_asked(kind):
    lr = LearnedLR(sgd(kind()), total_steps=None)
    assert (lr.has_end, lr.status()["total_steps"]) == (False, None)
    lr._driver.follow(lr._driver.plan.of(40), 40)  # it plans for 1,000 steps at first
    used = lrs_for(lr, [None] * 120)
    assert used[0] < used[1] / 3
    assert max(used[40:]) / min(used[40:]) < 1.25
    assert lr.status()["progress"] < 0.5
    lr.anneal(100)
    end = lrs_for(lr, [None] * 100)
    assert end[0] == pytest.approx(used[-1], rel=0.02)
    assert end == down(end[0], 100)
    assert (lr.total_steps, lr.has_end) == (220, True)


def test_a_run_without_an_end_replaces_a_plan_with_a_warning(kind):
    state = LearnedLR(sgd(kind()), line(), total_steps=None).state_dict()
    lr = LearnedLR(sgd(kind()), line(), total_steps=50)
    with pytest.warns(UserWarning, match=r"total_steps=None, which replaces 50; call anneal\(steps\) to end it"):
        lr.load_state_dict(state)
    assert not lr.has_end


def test_extend_gives_it_an_end(kind):
    lr = LearnedLR(sgd(kind()), line(), total_steps=None)
    ones(lr, 10)
    with pytest.raises(ValueError, match="total_steps must be a whole number >= 10, got 9"):
        lr.extend(9)
    assert not lr.has_end
    lr.extend(20)
    assert ones(lr, 10) == pytest.approx([0.5 * (1 - t / 20) for t in range(10, 20)], rel=1e-6)


def test_it_says_once_that_there_is_no_end_when_asked_and_never_warns_of_one_passed(task):
    lr = LearnedLR(sgd(), total_steps=None)
    with warnings.catch_warnings(action="error"):
        lrs_for(lr, [None] * 999)
        lr.status()  # too early to call it a problem
    lr.optimizer.step()
    with pytest.warns(UserWarning, match=r"has taken 1000 steps and has no end yet.*call anneal\(steps\)") as told:
        lr.status()
        lr.state_dict()
    assert len(told) == 1
    assert repr(lr) == "LearnedLR('universal', step 1000 of a training without an end yet)"


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        (SCHEDULES["paper"], "has 3 phases"),
        (lambda: Schedule(LSTMNet(4), Card(gamma=Fixed(1.0))), "does not read the progress"),
    ],
)
def test_a_schedule_that_needs_the_end_says_so(schedule, why):
    with pytest.raises(
        ValueError, match=f"total_steps must be given for the schedule 'unnamed', which {why}, got None: pass"
    ):
        LearnedLR(sgd(), schedule(), total_steps=None, num_classes=5)


def test_the_size_of_the_default_follows_the_steps_so_far():
    task = Task()
    optimizer = torch.optim.AdamW(task.model.parameters())
    lr = LearnedLR(optimizer, total_steps=None)
    for step in range(520):
        task.backward(step, optimizer)
        optimizer.step()
    assert lr.total_steps == 1062  # 1000, then a sixteenth more whenever half is over
    assert lr.status()["step"] == 520
