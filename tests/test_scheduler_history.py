"""LearnedLR.history and LearnedLR.plot: what a run has done so far, as a user sees it."""

import copy
import math
import sys

import numpy as np
import pytest
import torch
from cases import Task
from engines import LOSSES, lrs_for, sgd

from mlrsnet import Card, DecayNet, Gamma, LearnedLR, LSTMNet, MLPNet, Schedule

pytestmark = pytest.mark.filterwarnings("ignore:the loss does not fall")  # the losses here are constant


def three_phases() -> Schedule:
    torch.manual_seed(0)
    return Schedule([LSTMNet(4) for _ in range(3)], Card(gamma=Gamma("fixed", value=1.0)))


def marks(axes) -> dict[str, list[float]]:
    """The vertical lines of a picture by their label; those without one follow the one before."""
    found: dict[str, list[float]] = {}
    for line in axes.lines[1:]:
        label = line.get_label()
        name = list(found)[-1] if label.startswith("_") else label
        found.setdefault(name, []).append(float(line.get_xdata()[0]))
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
    assert lr.history.tolist() == used


def test_the_history_cannot_be_changed_and_a_kept_one_does_not_grow(kind):
    lr = LearnedLR(sgd(kind()), three_phases(), total_steps=9)
    lrs_for(lr, LOSSES[:3])
    kept = lr.history
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 1.0
    lrs_for(lr, LOSSES[3:5])
    assert (len(kept), len(lr.history)) == (3, 5)


def test_a_resumed_run_has_its_whole_history(kind):
    before = LearnedLR(sgd(kind()), three_phases(), total_steps=9)
    lrs_for(before, LOSSES[:4])
    after = LearnedLR(sgd(kind()), three_phases(), total_steps=9)
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    lrs_for(after, LOSSES[4:6])
    lrs_for(before, LOSSES[4:6])
    assert after.history.tolist() == before.history.tolist()


def test_a_skipped_loss_keeps_its_place_in_the_history(kind):
    lr = LearnedLR(sgd(kind()), three_phases(), total_steps=9)
    lrs_for(lr, [1.0, 0.9])
    with pytest.warns(UserWarning, match="a loss was not finite"):
        lr.step(math.nan)
        lr.report_problems()
    assert lr.history[2] == lr.history[1]


def test_the_history_goes_on_after_extend_anneal_and_without_an_end(kind):
    schedule = Schedule(DecayNet(0.0, 0.0), Card(gamma=Gamma("fixed", value=0.5)))
    extended = LearnedLR(sgd(kind()), schedule, total_steps=5)
    used = lrs_for(extended, [1.0] * 3)
    extended.extend(2000)  # more than there was room for
    used += lrs_for(extended, [1.0] * 3)
    assert extended.history.tolist() == used
    endless = LearnedLR(sgd(kind()), schedule, total_steps=None)
    used = lrs_for(endless, [1.0] * 5)
    endless.anneal(3)
    used += lrs_for(endless, [1.0] * 3)
    assert endless.history.tolist() == used


def test_the_picture_shows_the_lrs_the_phases_and_the_end(kind, tmp_path):
    lr = LearnedLR(sgd(kind()), three_phases(), total_steps=9)
    lrs_for(lr, LOSSES[:5])
    axes = lr.plot(tmp_path / "run.png")
    assert axes.lines[0].get_ydata().tolist() == lr.history.tolist()
    assert marks(axes) == {"next phase": [3, 6], "end (step 9)": [9]}
    assert (tmp_path / "run.png").stat().st_size > 5000


def test_the_picture_shows_where_annealing_began(kind):
    schedule = Schedule(DecayNet(0.0, 0.0), Card(gamma=Gamma("fixed", value=0.5)))
    lr = LearnedLR(sgd(kind()), schedule, total_steps=None)
    lrs_for(lr, [1.0] * 6)
    assert "no end yet" in lr.plot().get_title()
    with pytest.warns(UserWarning, match="a loss was not finite"):
        lr.step(math.nan)
        lr.report_problems()
    lr.anneal(4)
    assert marks(lr.plot()) == {"annealing began (step 7)": [7], "end (step 11)": [11]}
    assert len(lrs_for(lr, [1.0] * 4)) == 4
    assert len(lr.history) == 11


def test_a_picture_goes_into_axes_of_ones_own_and_needs_matplotlib(monkeypatch):
    from matplotlib.figure import Figure

    lr = LearnedLR(sgd(0.1), Schedule(MLPNet(2), Card(gamma=Gamma("fixed", value=1.0))), total_steps=3)
    lr.step(1.0)
    axes = Figure().subplots()
    assert lr.plot(ax=axes) is axes
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(
        ImportError, match=r"plot needs matplotlib, which is not installed: pip install 'mlrsnet\[lab\]'"
    ):
        lr.plot()
    assert np.isfinite(lr.history).all()
