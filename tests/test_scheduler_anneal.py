"""LearnedLR.anneal: a training that ends earlier or later than planned still ends at a small LR."""

import copy
import io
import math

import pytest
import torch
from cases import SCHEDULES, Task
from engines import LOSSES, lrs_for, sgd

from mlrsnet import Card, DecayNet, Gamma, LearnedLR, LSTMNet, MLPNet, Schedule, _features

TOTAL = 40
pytestmark = pytest.mark.filterwarnings("ignore:the loss does not fall")  # the losses here are constant


def line() -> Schedule:
    """A schedule that reads only the progress: warm-up, then 1 - u."""
    return Schedule(DecayNet(0.0, 0.0).double(), Card(gamma=Gamma("fixed", value=0.5)))


def annealing(kind, schedule=None, before=10, steps=8, **options):
    lr = LearnedLR(sgd(kind()), schedule or line(), total_steps=TOTAL, **options)
    used = lrs_for(lr, [1.0] * before)
    lr.anneal(steps)
    return lr, used


def test_the_lr_falls_in_a_straight_line_from_where_it_is_to_nearly_0(kind):
    lr, used = annealing(kind)
    planned = LearnedLR(sgd(kind()), line(), total_steps=TOTAL)
    next_lr = lrs_for(planned, [1.0] * 11)[-1]
    assert used[-1] == pytest.approx(0.5 * (1 - 9 / TOTAL))
    assert lrs_for(lr, [1.0] * 8) == pytest.approx([next_lr * (1 - k / 8) for k in range(8)], rel=1e-6)


@pytest.mark.parametrize("steps", [1, 2, 500])
def test_a_training_may_end_at_once_or_go_on_past_its_plan(kind, steps):
    lr, _ = annealing(kind, steps=steps)
    used = lrs_for(lr, [1.0] * steps)
    assert lr.total_steps == 10 + steps
    assert used == pytest.approx([0.375 * (1 - k / steps) for k in range(steps)], rel=1e-5)


def test_a_second_call_counts_from_where_it_is(kind):
    lr, _ = annealing(kind)
    lrs_for(lr, [1.0] * 4)
    lr.anneal(20)
    assert lr.total_steps == 34
    assert lrs_for(lr, [1.0] * 20) == pytest.approx([0.1875 * (1 - k / 20) for k in range(20)], rel=1e-5)


def test_losses_that_did_not_count_neither_shorten_the_end_nor_warn_early(kind):
    lr = LearnedLR(sgd(kind()), line(), total_steps=TOTAL)
    with pytest.warns(UserWarning, match="a loss was not finite"):
        lrs_for(lr, [1.0] * 5 + [math.nan] * 2 + [1.0] * 5)
        lr.report_problems()
    lr.anneal(4)
    assert lr.total_steps == 14
    assert lrs_for(lr, [1.0] * 4) == pytest.approx([0.375 * (1 - k / 4) for k in range(4)], rel=1e-6)


def test_phases_follow(kind):
    nets = [MLPNet(2) for _ in range(3)]
    for index, net in enumerate(nets):
        net.out.weight.data.zero_()
        net.out.bias.data.fill_(float(index))
    lr = LearnedLR(sgd(kind()), Schedule(nets, Card(gamma=Gamma("fixed", value=1.0))), total_steps=30)
    lrs_for(lr, [1.0] * 10)
    lr.anneal(6)  # progress 1/3, then on in ninths
    assert lrs_for(lr, [1.0] * 6) == pytest.approx([1 / (1 + math.exp(-phase)) for phase in (1, 1, 1, 2, 2, 2)])


def test_a_step_past_the_new_end_warns_once_and_keeps_the_last_lr(kind):
    lr, _ = annealing(kind)
    last = lrs_for(lr, [1.0] * 8)[-1]
    with pytest.warns(
        UserWarning, match=r"step 19 is past the end that LearnedLR.anneal\(steps\) set, step 18"
    ) as told:
        assert lrs_for(lr, [1.0] * 3) == [last] * 3
    assert len(told) == 1


@pytest.mark.parametrize("steps", [0, -3, 2.5, None, True])
def test_a_bad_number_of_steps_is_named_and_changes_nothing(kind, steps):
    lr = LearnedLR(sgd(kind()), line(), total_steps=TOTAL)
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


def test_a_horizon_cannot_be_extended_while_it_ends(kind):
    lr, _ = annealing(kind)
    with pytest.raises(RuntimeError, match=r"has set the end at step 18: call anneal\(steps\) again to end later"):
        lr.extend(100)
    assert lr.total_steps == 18


@pytest.mark.parametrize("name", ["horizon", "trend", "decay", "paper"])
def test_a_run_that_ends_resumes_bit_for_bit(name, kind):
    torch.manual_seed(1)
    schedule = SCHEDULES[name]()

    def build():
        return LearnedLR(sgd(kind()), schedule, total_steps=TOTAL, num_classes=5)

    lr = build()
    lrs_for(lr, LOSSES)
    lr.anneal(9)
    lrs_for(lr, LOSSES[:2])
    file = io.BytesIO()
    torch.save(lr.state_dict(), file)
    file.seek(0)
    resumed, twin = build(), copy.deepcopy(lr)
    resumed.load_state_dict(torch.load(file, weights_only=True))  # without a warning about another total_steps
    expected = lrs_for(lr, LOSSES[2:])
    assert lrs_for(resumed, LOSSES[2:]) == lrs_for(twin, LOSSES[2:]) == expected
    assert (resumed.total_steps, resumed.is_annealing) == (18, True)
    resumed.anneal(5)
    lr.anneal(5)
    assert lrs_for(resumed, LOSSES[:5]) == lrs_for(lr, LOSSES[:5])


def test_a_state_from_before_takes_the_end_back(kind):
    lr = LearnedLR(sgd(kind()), line(), total_steps=TOTAL)
    lrs_for(lr, [1.0] * 5)
    before = lr.state_dict()
    expected = lrs_for(lr, [1.0] * 5)
    lr.anneal(3)
    lr.load_state_dict(before)
    assert (lr.total_steps, lr.is_annealing) == (TOTAL, False)
    assert lrs_for(lr, [1.0] * 5) == expected


def test_states_of_runs_as_planned_are_those_of_version_0_1(kind):
    lr = LearnedLR(sgd(kind()), line(), total_steps=TOTAL)
    assert not {"planned_steps", "anneal_begin", "anneal_start"} & lr.state_dict().keys()


def test_half_an_end_is_no_state(kind):
    lr, _ = annealing(kind)
    state = lr.state_dict()
    del state["anneal_start"]
    with pytest.raises(ValueError, match=r"state_dict must be one saved by LearnedLR.state_dict"):
        lr.load_state_dict(state)


def test_a_captured_step_sees_the_new_end_in_the_buffers_that_it_has():
    lr = LearnedLR(sgd(torch.tensor(0.1)), line(), total_steps=TOTAL)
    lrs_for(lr, [1.0] * 10)
    backend = lr.engine.backend
    before, history = backend.counts.data_ptr(), backend.history.data_ptr()
    lr.anneal(8)
    assert (backend.counts.data_ptr(), backend.history.data_ptr()) == (before, history)
    assert backend.counts[5:].tolist() == [18, 10, _features.PROGRESS_UNIT // 4]


@pytest.mark.parametrize("tensor", [False, True])
def test_a_measured_range_keeps_its_size_and_its_window(tensor):
    gamma = Gamma("measured", value=0.1, horizon_power=-0.5)
    task = Task()
    optimizer = torch.optim.SGD(task.model.parameters(), lr=torch.tensor(0.1) if tensor else 0.1)
    lr = LearnedLR(optimizer, Schedule(DecayNet(0.0, 0.0), Card(gamma=gamma)), total_steps=200)

    def train(steps):
        for step in steps:
            lr.step(task.backward(step, optimizer))
            optimizer.step()

    train(range(40))
    engine = lr.engine
    before = engine.backend.optimizer_scale, float(engine.meter.mean.fresh)
    lr.anneal(10)
    assert (engine.backend.optimizer_scale, float(engine.meter.mean.fresh)) == before
    saved = lr.state_dict()
    train(range(40, 50))
    resumed = LearnedLR(optimizer, lr.schedule, total_steps=200)
    resumed.load_state_dict(saved)
    assert (resumed.engine.backend.optimizer_scale, float(resumed.engine.meter.mean.fresh)) == before


def test_an_ended_run_can_be_replayed(kind):
    lr, used = annealing(kind)
    used += lrs_for(lr, [1.0] * 8)
    optimizer = sgd(kind())
    replay = lr.export_lambda(optimizer)
    replayed = []
    for _ in used:
        replayed.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        replay.step()
    assert replayed == used
