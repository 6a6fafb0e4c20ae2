"""LearnedLR.history, plot and export_lambda: what a run has done so far, as a user sees it."""

import copy
import math
import sys
import warnings

import pytest
import torch
from cases import Task, line, stairs
from steps import LOSSES, lrs_for, sgd
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from mlrsnet import LearnedLR, _numbers

pytestmark = pytest.mark.filterwarnings("ignore:the loss does not fall")  # the losses here are constant


def marks(axes) -> dict[str, list[float]]:
    """The vertical lines of a picture by their label; those without one follow the one before."""
    found: dict[str, list[float]] = {}
    for one in axes.lines[1:]:
        label = one.get_label()
        name = list(found)[-1] if label.startswith("_") else label
        found.setdefault(name, []).append(float(one.get_xdata()[0]))
    return found


def test_the_history_is_the_lr_of_every_step(schedule, kind):
    task, used = Task(), []
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, schedule, total_steps=12, num_classes=5)
    assert lr.history.shape == (0,)
    for step in range(12):
        lr.step(task.backward(step, optimizer))
        optimizer.step()
        used.append(float(lr.get_last_lr()[0]))
    assert lr.history.tolist() == pytest.approx(used, rel=1e-6)


def test_the_history_cannot_be_changed_and_a_kept_one_does_not_grow(kind):
    lr = LearnedLR(sgd(kind()), total_steps=9)
    lrs_for(lr, LOSSES[:3])
    kept = lr.history
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 1.0
    lrs_for(lr, LOSSES[3:5])
    assert (len(kept), len(lr.history)) == (3, 5)


def test_a_skipped_loss_keeps_its_place_and_the_history_goes_on_after_extend_and_anneal(kind):
    lr = LearnedLR(sgd(kind()), line(), total_steps=5)
    used = lrs_for(lr, [1.0, 1.0])
    with pytest.warns(UserWarning, match="a loss was not finite"):
        used += lrs_for(lr, [math.nan])
        lr.status()
    lr.extend(2000)
    used += lrs_for(lr, [1.0] * 3)
    lr.anneal(3)
    used += lrs_for(lr, [1.0] * 3)
    assert lr.history.tolist() == pytest.approx(used, rel=1e-6)
    assert lr.history[2] == lr.history[1]


@pytest.mark.parametrize("resumes", [False, True])
def test_a_long_history_keeps_every_second_or_fourth_lr(kind, monkeypatch, resumes):
    """At most so many, of whatever training: they are part of every checkpoint."""
    monkeypatch.setattr(_numbers, "MOST_LRS", 10)

    def begun(total):
        return LearnedLR(sgd(kind()), line(), total_steps=total)

    lr = begun(10)
    used = lrs_for(lr, [1.0] * 9)
    assert lr.history_stride == 1
    lr.extend(33)
    if resumes:
        before, lr = lr, begun(33)
        lr.load_state_dict(copy.deepcopy(before.state_dict()))
    used += lrs_for(lr, [1.0] * 24)
    assert lr.history_stride == 4
    assert lr.history.tolist() == pytest.approx(used[::4], rel=1e-6)
    lr.extend(66)
    used += lrs_for(lr, [1.0] * 20)
    assert lr.history_stride == 8
    assert lr.history.tolist() == pytest.approx(used[::8], rel=1e-6)
    with pytest.raises(
        RuntimeError, match=r"LR of every step must be on record, got 7 LRs of 53 steps.*log get_last_lr\(\)"
    ):
        lr.export_lambda()
    with pytest.warns(UserWarning, match="is past total_steps"):
        lrs_for(lr, [1.0] * 20)
    assert len(lr.history) == 10


def test_the_picture_shows_the_lrs_the_phases_and_the_end(kind, tmp_path):
    lr = LearnedLR(sgd(kind()), stairs(0.2, 0.4, 0.6), total_steps=9)
    lrs_for(lr, LOSSES[:5])
    axes = lr.plot(tmp_path / "run.png")
    assert axes.lines[0].get_ydata().tolist() == lr.history.tolist()
    assert marks(axes) == {"next phase": [3, 6], "end (step 9)": [9]}
    assert (tmp_path / "run.png").stat().st_size > 5000


def test_the_picture_shows_where_annealing_began(kind):
    lr = LearnedLR(sgd(kind()), line(), total_steps=None)
    lrs_for(lr, [1.0] * 6)
    assert "no end yet" in lr.plot().get_title()
    with pytest.warns(UserWarning, match="a loss was not finite"):
        lrs_for(lr, [math.nan])
        lr.status()
    lr.anneal(4)
    assert marks(lr.plot()) == {"annealing began (step 7)": [7], "end (step 11)": [11]}


def test_a_picture_goes_into_axes_of_ones_own_and_needs_matplotlib(monkeypatch):
    from matplotlib.figure import Figure

    lr = LearnedLR(sgd(0.1), total_steps=3)
    axes = Figure().subplots()
    assert lr.plot(ax=axes) is axes
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(
        ImportError, match=r"plot needs matplotlib, which is not installed: pip install 'mlrsnet\[plots\]'"
    ):
        lr.plot()


def two_groups(kind):
    return SGD([{"params": [torch.nn.Parameter(torch.ones(n))], "lr": kind(lr)} for n, lr in ((2, 0.1), (1, 0.03))])


@pytest.mark.parametrize("held", [False, True])
def test_export_lambda_replays_the_run_exactly(paper, kind, held):
    lr = LearnedLR(two_groups(kind), paper, total_steps=10, num_classes=5)
    used = []
    with warnings.catch_warnings(action="ignore"):
        for loss in [*LOSSES[:4], math.nan, *LOSSES[4:]] if held else LOSSES:
            lrs_for(lr, [loss])
            used.append([float(x) for x in lr.get_last_lr()])
    optimizer = two_groups(kind)
    replay, replayed = lr.export_lambda(optimizer), []
    assert type(replay) is LambdaLR
    for _ in used:
        replayed.append([float(group["lr"]) for group in optimizer.param_groups])
        optimizer.step()
        replay.step()
    assert replayed == used
    assert [float(group["lr"]) for group in optimizer.param_groups] == used[-1]  # the last LR stays
    other = lr.export_lambda(two_groups(kind))
    other.load_state_dict(replay.state_dict())
    assert other.last_epoch == len(used)


def test_export_lambda_needs_a_run_and_the_same_groups(paper):
    lr = LearnedLR(sgd(), paper, total_steps=9, num_classes=5)
    with pytest.raises(RuntimeError, match="must be on record, got 0 LRs of 0 steps: take a step first"):
        lr.export_lambda()
    lrs_for(lr, [1.6, 1.5])
    with pytest.raises(ValueError, match="optimizer must have the 1 parameter groups of the recorded run, got 2"):
        lr.export_lambda(two_groups(float))
    replay, used = lr.export_lambda(), lr.history.tolist()
    assert replay.optimizer is lr.optimizer
    lr.optimizer.step()  # which LearnedLR leaves alone from now on
    replay.step()
    assert lr.get_last_lr() == [used[1]]
