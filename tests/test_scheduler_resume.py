"""How LearnedLR continues: from states, copies and new processes; and runs exported for replay."""

import copy
import io
import math
import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from cases import Task
from engines import LOSSES, lrs_for, sgd
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import LambdaLR

from mlrsnet import LearnedLR


def test_observed_losses_survive_a_checkpoint(paper, kind):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    lr.observe(1.0)
    resumed = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    resumed.load_state_dict(lr.state_dict())
    for each in (lr, resumed):
        each.step(2.0)
    assert float(lr.get_last_lr()[0]) == float(resumed.get_last_lr()[0])


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
    resumed.report_problems()
    assert len(record) == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda lr: pickle.loads(pickle.dumps(lr))])
def test_a_copied_scheduler_goes_on_by_itself(paper, kind, copied):
    lr = LearnedLR(sgd(kind()), paper, total_steps=9, num_classes=5)
    lrs_for(lr, LOSSES[:3])
    twin = copied(lr)
    assert lrs_for(twin, LOSSES[3:]) == lrs_for(lr, LOSSES[3:])
    assert twin.status() == lr.status()
    assert float(twin.optimizer.param_groups[0]["lr"]) == float(lr.optimizer.param_groups[0]["lr"])


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
    assert [float(group["lr"]) for group in optimizer.param_groups] == used[-1]  # the last LR stays
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
    lr.load_state_dict(old)  # early versions did not save these, so there is no warning


def test_a_run_can_move_between_float_and_tensor_lrs(horizon):
    host = LearnedLR(sgd(), horizon, total_steps=9, num_classes=5)
    lrs_for(host, LOSSES[:4])
    device = LearnedLR(sgd(torch.tensor(0.1)), horizon, total_steps=9, num_classes=5)
    device.load_state_dict(host.state_dict())
    np.testing.assert_allclose(lrs_for(device, LOSSES[4:]), lrs_for(host, LOSSES[4:]), rtol=1e-5)


RESUME = """
import os, sys, torch
sys.path[:0] = sys.argv[1].split(os.pathsep)
from cases import Task
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
    tests = os.pathsep.join(sys.path)

    def run(begin, end):
        subprocess.run([sys.executable, script, tests, tmp_path, str(begin), str(end)], check=True, timeout=120)
        return torch.load(tmp_path / "checkpoint.pt", weights_only=True)

    whole = run(0, 12)
    run(0, 5)
    torch.testing.assert_close(run(5, 12), whole, rtol=0, atol=0)
