"""How LearnedLR continues: from states, copies and new processes. test_contract.py has every schedule with every optimizer."""

import copy
import math
import os
import pickle
import subprocess
import sys

import pytest
import torch
from cases import Task
from steps import LOSSES, exactly, lrs_for, sgd, through_a_file
from torch.optim import SGD, AdamW

from mlrsnet import LearnedLR, _numbers


def plain(lr=0.1):
    return lr


def running(schedule, kind, losses=(), **options):
    lr = LearnedLR(sgd(kind()), schedule, **{"total_steps": 9, "num_classes": 5, **options})
    lrs_for(lr, losses)
    return lr


@pytest.mark.parametrize("call", ["step", "observe"])
def test_losses_that_no_step_has_used_survive_a_checkpoint(paper, kind, call):
    lr = running(paper, kind)
    getattr(lr, call)(1.0)
    resumed = running(paper, kind)
    resumed.step(9.0)  # is replaced
    resumed.load_state_dict(through_a_file(lr.state_dict()))
    resumed.optimizer.step()
    assert resumed.status()["initial_loss"] == 1.0


def test_a_warning_points_at_the_users_line_and_is_not_repeated_after_resuming(paper, kind):
    lr = running(paper, kind)
    lr.step(math.nan)
    with pytest.warns(UserWarning, match="a loss was not finite") as record:
        lr.optimizer.step()
        saved = lr.state_dict()
    assert [one.filename for one in record] == [__file__]
    resumed = running(paper, kind)
    resumed.load_state_dict(saved)
    lrs_for(resumed, [1.6])
    resumed.status()


@pytest.mark.parametrize("name", ["paper", "universal"])
@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_a_copied_scheduler_goes_on_by_itself(paper, name, kind, copied, after):
    task = Task()
    optimizer = AdamW(
        [{"params": list(task.model.parameters())[:2], "lr": kind(0.2)}, {"params": list(task.model.parameters())[2:]}]
    )
    lr = LearnedLR(optimizer, paper if name == "paper" else name, total_steps=9, num_classes=5)

    def train(task, lr, steps):
        for step in steps:
            lr.step(task.backward(step, lr.optimizer))
            lr.optimizer.step()
        return lr.history.tolist()

    train(task, lr, range(after))
    twin_task, twin = copied((task, lr))
    assert twin.group_ratios == lr.group_ratios
    assert repr(twin) == repr(lr)
    assert train(twin_task, twin, range(after, 6)) == train(task, lr, range(after, 6))
    assert exactly(twin.status()) == exactly(lr.status())
    assert torch.equal(twin_task.weights(), task.weights())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_a_copy_of_a_removed_one_stays_removed(copied):
    lr = LearnedLR(sgd(), total_steps=9)
    lr.remove()
    twin = copied(lr)
    twin.optimizer.step()
    assert (twin.last_epoch, twin.get_last_lr()) == (0, [0.1])


def test_a_run_goes_on_bit_for_bit_between_a_new_group_and_the_next_step(kind):
    """Gradual unfreezing, with a checkpoint at the worst moment."""
    data, whole = list(range(12)), None
    for stops in (False, True):
        task = Task()
        groups = [list(layer.parameters()) for layer in (task.model[2], task.model[0])]
        optimizer = AdamW(groups[0], lr=kind(0.1))
        lr = LearnedLR(optimizer, total_steps=12)
        with torch.no_grad():
            task.model[0].weight.mul_(20)  # longer than counts
        for step in data[:5]:
            lr.step(task.backward(step, optimizer))
            optimizer.step()
        optimizer.add_param_group({"params": groups[1], "lr": kind(0.05)})
        if stops:
            saved = through_a_file([optimizer.state_dict(), lr.state_dict()])
            optimizer = AdamW([{"params": groups[0], "lr": kind(0.1)}, {"params": groups[1], "lr": kind(0.05)}])
            lr = LearnedLR(optimizer, total_steps=12)
            optimizer.load_state_dict(saved[0])
            lr.load_state_dict(saved[1])
        for step in data[5:]:
            lr.step(task.backward(step, optimizer))
            optimizer.step()
        whole = exactly(lr.state_dict()) if whole is None else whole
    assert exactly(lr.state_dict()) == whole


def test_a_foreign_state_is_refused_by_name(paper, horizon):
    lr = running(paper, plain)
    for state in ({"last_epoch": 3}, "a path", None, {**lr.state_dict(), "version": 3}):
        with pytest.raises(ValueError, match=r"state_dict must be one saved by LearnedLR.state_dict.*pass the state"):
            lr.load_state_dict(state)
    with pytest.raises(
        ValueError, match=r"schedule of this LearnedLR, 'unnamed', got one of 'unnamed' with other numbers"
    ):
        lr.load_state_dict(running(horizon, plain).state_dict())
    with pytest.raises(
        ValueError, match=r"before version 0.2: .* finish that training with the version that began it, or"
    ):
        lr.load_state_dict({"version": 1, "last_epoch": 3, "lr": 0.1})


def test_a_saved_horizon_replaces_the_new_one_with_a_warning(kind):
    first = running("universal", kind, LOSSES[:3])
    lr = running("universal", kind, total_steps=20)
    with pytest.warns(UserWarning, match=r"total_steps=9, which replaces 20; call .*extend"):
        lr.load_state_dict(first.state_dict())
    assert lr.total_steps == 9
    assert lrs_for(lr, LOSSES[3:]) == lrs_for(first, LOSSES[3:])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"num_classes": 7}, "num_classes=5, this one has 7"),
        ({"num_classes": None}, "num_classes=5, this one has None"),
        ({"scale": 0.5}, "scale=2.0, this one has 0.5"),
        ({"min_lr": 0.1}, "min_lr=0.0, this one has 0.1"),
        ({"max_lr": 0.1}, "max_lr=inf, this one has 0.1"),
    ],
)
def test_a_run_resumed_with_other_arguments_is_told_once(horizon, kind, options, told):
    state = running(horizon, kind, scale=2.0).state_dict()
    lr = running(horizon, kind, **{"scale": 2.0, **options})
    with pytest.warns(UserWarning, match=f"the saved run had {told}.*construct LearnedLR with") as record:
        lr.load_state_dict(state)
    assert len(record) == 1


def test_the_number_of_classes_is_that_of_the_saved_run(horizon, kind):
    first = running(horizon, kind, LOSSES[:3])
    lr = running(horizon, kind, num_classes=50)
    with pytest.warns(UserWarning, match="num_classes=5, this one has 50"):
        lr.load_state_dict(first.state_dict())
    assert lrs_for(lr, LOSSES[3:]) == lrs_for(first, LOSSES[3:])


@pytest.mark.parametrize("name", ["horizon", "universal"])
def test_a_run_can_move_between_float_and_tensor_lrs(horizon, name, kind):
    schedule = horizon if name == "horizon" else name
    host, other = running(schedule, plain, LOSSES[:4]), running(schedule, kind)
    other.load_state_dict(host.state_dict())
    back = running(schedule, plain)
    assert lrs_for(other, LOSSES[4:6]) == pytest.approx(lrs_for(host, LOSSES[4:6]), rel=1e-5)
    back.load_state_dict(other.state_dict())
    assert lrs_for(back, LOSSES[6:]) == pytest.approx(lrs_for(host, LOSSES[6:]), rel=1e-5)


@pytest.mark.parametrize("total", [10, 40])
def test_a_history_that_was_thinned_stays_so_after_its_end_has_moved(kind, monkeypatch, total):
    monkeypatch.setattr(_numbers, "MOST_LRS", 10)
    lr = running("universal", kind, [None] * 6, total_steps=40)
    lr.anneal(4)
    again = running("universal", kind, [None], total_steps=40)
    again = running("universal", kind, total_steps=total) if total == 40 else again
    again.load_state_dict(through_a_file(lr.state_dict()))
    lrs_for(lr, [None] * 4), lrs_for(again, [None] * 4)
    assert (again.history_stride, again.history.tolist()) == (lr.history_stride, lr.history.tolist())


def test_a_state_is_small(kind):
    """However long the training is: at most 10,000 LRs, and 512 entries of the start of each matrix."""
    big = torch.nn.Parameter(torch.ones(300, 1000))
    lr = LearnedLR(SGD([big], lr=kind()), total_steps=10**6)
    big.grad = torch.ones_like(big)
    lr.optimizer.step()
    state = lr.state_dict()
    assert sum(one.numel() for one in state["distance"].values()) == 512
    assert len(pickle.dumps(state)) < 20_000


RESUME = """
import os, sys, torch
sys.path[:0] = sys.argv[1].split(os.pathsep)
from cases import Task
from mlrsnet import LearnedLR
from steps import exactly
task = Task()
optimizer = torch.optim.SGD(task.model.parameters(), lr=0.1, momentum=0.9)
lr = LearnedLR(optimizer, total_steps=12)
things = (task.model, optimizer, lr)
for thing, state in zip(things, torch.load(sys.argv[2], weights_only=True)):
    thing.load_state_dict(state)
for step in range(5, 12):
    lr.step(task.backward(step, optimizer))
    optimizer.step()
print(exactly([thing.state_dict() for thing in things]))
"""


def test_a_new_process_goes_on_bit_for_bit(tmp_path):
    task = Task()
    optimizer = SGD(task.model.parameters(), lr=0.1, momentum=0.9)
    lr = LearnedLR(optimizer, total_steps=12)
    for step in range(12):
        if step == 5:
            torch.save([thing.state_dict() for thing in (task.model, optimizer, lr)], tmp_path / "checkpoint.pt")
        lr.step(task.backward(step, optimizer))
        optimizer.step()
    words = [sys.executable, "-c", RESUME, os.pathsep.join(sys.path), tmp_path / "checkpoint.pt"]
    found = subprocess.run(words, check=True, timeout=120, capture_output=True, text=True).stdout
    assert found.strip() == str(exactly([thing.state_dict() for thing in (task.model, optimizer, lr)]))
