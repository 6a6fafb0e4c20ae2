"""LearnedLR(total_steps=None): a training whose end nobody knows, until `anneal` sets it."""

import io
import warnings

import pytest
import torch
from cases import SCHEDULES, Task
from engines import LOSSES, lrs_for, sgd

from mlrsnet import Card, DecayNet, Gamma, LearnedLR, LSTMNet, Schedule
from mlrsnet._engine import engine as engine_module

pytestmark = pytest.mark.filterwarnings("ignore:the loss does not fall")  # the losses here are constant


def line(**options) -> Schedule:
    """A schedule that reads only the progress: warm-up, then 1 - u."""
    gamma = Gamma("measured", **options) if options else Gamma("fixed", value=0.5)
    return Schedule(DecayNet(0.0, 0.0).double(), Card(gamma=gamma))


def test_the_lr_warms_up_then_goes_on_at_one_height_and_falls_when_asked(kind):
    lr = LearnedLR(sgd(kind()), line(), total_steps=None)
    used = lrs_for(lr, [1.0] * 3000)
    assert used[0] == pytest.approx(0.005)  # a hundredth
    assert used[50] == pytest.approx(0.5 * 0.95)  # after the warm-up
    plateau = used[500:]
    assert 0.25 < min(plateau) < max(plateau) < 0.25 * 17 / 16 + 1e-6
    lr.anneal(100)
    end = lrs_for(lr, [1.0] * 100)
    assert end[0] == pytest.approx(used[-1], rel=1e-3)
    assert end == pytest.approx([end[0] * (1 - k / 100) for k in range(100)], rel=1e-5)
    assert (lr.total_steps, lr.has_end) == (3100, True)


def test_progress_stays_below_a_half_and_is_never_0_again(kind):
    lr = LearnedLR(sgd(kind()), line(), total_steps=None)
    seen = []
    for _ in range(1500):
        seen.append(float(lr.engine.backend.progress()))
        lr.step(1.0)
    assert max(seen) < 0.5
    assert min(seen[500:]) > 0.47


def test_the_level_of_the_loss_is_still_followed(kind):
    schedule = Schedule(DecayNet(1.0, 0.0), Card(gamma=Gamma("fixed", value=1.0)))
    lr = LearnedLR(sgd(kind()), schedule, total_steps=None)
    high = lrs_for(lr, [2.0] * 1000)[-1]
    assert lrs_for(lr, [0.5] * 1000)[-1] == pytest.approx(high / 4, rel=0.15)


def test_the_law_of_a_measured_range_follows_the_steps_so_far():
    task = Task()
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.1)
    lr = LearnedLR(optimizer, line(value=0.1, horizon_power=-0.5), total_steps=None)
    scale = lr.engine.backend.optimizer_scale
    for step in range(600):
        lr.step(task.backward(step, optimizer))
        optimizer.step()
    assert lr.total_steps == 1272  # 1000, then a sixteenth more whenever half is over
    assert lr.engine.backend.optimizer_scale == pytest.approx(scale * (1272 / 1000) ** -0.5)
    lr.anneal(10)
    assert lr.engine.backend.optimizer_scale == pytest.approx(scale * (1272 / 1000) ** -0.5)


@pytest.mark.parametrize("name", ["horizon", "trend", "decay"])
def test_it_resumes_bit_for_bit_before_and_after_its_end_is_known(name, kind):
    torch.manual_seed(1)
    schedule = SCHEDULES[name]()

    def build():
        return LearnedLR(sgd(kind()), schedule, total_steps=None, num_classes=5)

    def resumed(lr):
        file = io.BytesIO()
        torch.save(lr.state_dict(), file)
        file.seek(0)
        again = build()
        again.load_state_dict(torch.load(file, weights_only=True))
        return again

    lr = build()
    lrs_for(lr, [1.5] * 520)
    again = resumed(lr)
    assert not again.has_end
    assert lrs_for(again, LOSSES * 10) == lrs_for(lr, LOSSES * 10)
    assert again.total_steps == lr.total_steps
    for each in (lr, again):
        each.anneal(9)
    ending = resumed(again)
    assert ending.has_end
    assert lrs_for(ending, LOSSES) == lrs_for(lr, LOSSES)


def test_a_run_without_an_end_replaces_a_plan_with_a_warning(kind):
    state = LearnedLR(sgd(kind()), line(), total_steps=None).state_dict()
    lr = LearnedLR(sgd(kind()), line(), total_steps=50)
    with pytest.warns(UserWarning, match=r"total_steps=None, which replaces 50; call anneal\(steps\) to end it"):
        lr.load_state_dict(state)
    assert not lr.has_end


def test_extend_gives_it_an_end(kind):
    lr = LearnedLR(sgd(kind()), line(), total_steps=None)
    lrs_for(lr, [1.0] * 100)
    with pytest.raises(ValueError, match="total_steps must be a whole number >= 100, got 99"):
        lr.extend(99)
    assert not lr.has_end
    lr.extend(200)
    assert lrs_for(lr, [1.0] * 100) == pytest.approx([0.5 * (1 - t / 200) for t in range(100, 200)], rel=1e-6)


def test_it_says_once_that_there_is_no_end_when_asked_and_never_warns_of_one_passed(kind):
    lr = LearnedLR(sgd(kind()), line(), total_steps=None)
    with warnings.catch_warnings(action="error"):
        lrs_for(lr, [1 - t / 2000 for t in range(999)])
        lr.report_problems()  # too early to call it a problem
    lr.step(1.0)
    with pytest.warns(UserWarning, match=r"has taken 1000 steps and has no end yet.*call anneal\(steps\)") as told:
        lr.report_problems()
        lr.report_problems()
    assert len(told) == 1
    assert repr(lr) == "LearnedLR('unnamed', step 1000 of a training without an end yet)"
    assert lr.status()["step"] == 1000


@pytest.mark.parametrize(
    ("schedule", "why"),
    [(SCHEDULES["paper"], "has 3 phases"), (lambda: Schedule(LSTMNet(4)), "does not read the progress")],
)
def test_a_schedule_that_needs_the_end_says_so(kind, schedule, why):
    with pytest.raises(
        ValueError, match=f"total_steps must be given for the schedule 'unnamed', which {why}, got None: pass"
    ):
        LearnedLR(sgd(kind()), schedule(), total_steps=None, num_classes=5)


def test_a_graph_that_could_not_move_the_end_is_refused(monkeypatch):
    lr = LearnedLR(sgd(torch.tensor(0.1)), line(), total_steps=None)
    monkeypatch.setattr(engine_module, "is_captured", lambda loss: True)
    with pytest.raises(
        RuntimeError, match=r"total_steps=None cannot be captured in a graph.*call anneal\(steps\) when"
    ):
        lr.step(torch.tensor(1.0))


def test_a_run_without_an_end_can_be_replayed(kind):
    lr = LearnedLR(sgd(kind()), line(), total_steps=None)
    used = lrs_for(lr, [1.0] * 2500)
    history = lr.engine.backend.snapshot()["history"]
    assert history.tolist() == used
