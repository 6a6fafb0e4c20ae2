"""Parameter groups: which of them gets the schedule's own LR, and what the others get."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW

from mlrsnet import LearnedLR

SCHEDULES = ("universal", "universal-relative", "universal-2")
BACKBONE, HEAD = 1e-5, 1e-3


def network():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
    return nn.ModuleDict({"body": body, "head": nn.Linear(32, 3)}).double()


def batches(count=12):
    random = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 32, 8, generator=random, dtype=torch.float64)
    return [(x, x[:, :3].argmax(1)) for x in inputs]


def train(model, optimizer, lr, data):
    """The LRs of all groups in all steps."""
    used = []
    for x, y in data:
        loss = cross_entropy(model["head"](model["body"](x)), y)
        optimizer.zero_grad()
        loss.backward()
        lr.step(loss)
        optimizer.step()
        used.append([float(one) for one in lr.get_last_lr()])
    return used


def fine_tuning(model, kind, *, head_first=False):
    groups = [
        {"params": model["body"].parameters(), "lr": kind(BACKBONE)},
        {"params": model["head"].parameters(), "lr": kind(HEAD)},
    ]
    return AdamW(groups[::-1] if head_first else groups)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_backbone_and_a_head_get_the_same_lrs_in_either_order(schedule, kind):
    found = []
    for head_first in (False, True):
        model = network()
        optimizer = fine_tuning(model, kind, head_first=head_first)
        lr = LearnedLR(optimizer, schedule, total_steps=12)
        used = train(model, optimizer, lr, batches())
        found.append([one[:: -1 if head_first else 1] for one in used])
        backbone = int(head_first)
        assert lr.main_group == backbone
        assert lr.group_ratios == pytest.approx([1, 100] if not head_first else [100, 1])
        assert lr.status()["lr"] == pytest.approx(used[-1][backbone])
    torch.testing.assert_close(*map(torch.tensor, found), rtol=1e-5, atol=0)


def test_most_weights_decide_by_their_lr_and_not_by_their_group():
    """As where norms and biases are groups of their own, without weight decay."""
    groups = [{"params": [nn.Parameter(torch.ones(n))], "lr": lr} for lr, n in ((0.1, 5), (0.3, 3), (0.3, 4))]
    lr = LearnedLR(SGD(groups, lr=0.1), "universal", total_steps=9)
    assert lr.main_group == 2
    assert lr.group_ratios == pytest.approx([1 / 3, 1, 1])
    assert "group LRs times 0.3333, 1, 1" in repr(lr)


@pytest.mark.parametrize("order", [1, -1])
def test_as_many_weights_at_two_lrs_take_the_larger_one(order):
    groups = [{"params": [nn.Parameter(torch.ones(3))], "lr": lr} for lr in (0.1, 0.4)[::order]]
    assert LearnedLR(SGD(groups), "universal", total_steps=9).group_ratios == pytest.approx([0.25, 1.0][::order])


def test_weights_that_are_not_trained_do_not_decide():
    model = network()
    model["body"].requires_grad_(False)
    assert LearnedLR(fine_tuning(model, float), "universal", total_steps=9).group_ratios == pytest.approx([0.01, 1])


def test_groups_with_one_lr_are_not_spoken_of():
    assert repr(LearnedLR(SGD(network().parameters(), lr=0.1), "universal", total_steps=9)).endswith("step 0 of 9)")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_backbone_that_joins_later_does_not_change_the_lr_of_the_head(schedule, kind):
    """Gradual unfreezing."""
    model = network()
    optimizer = AdamW(model["head"].parameters(), lr=kind(HEAD))
    lr = LearnedLR(optimizer, schedule, total_steps=12)
    train(model, optimizer, lr, batches()[:4])
    optimizer.add_param_group({"params": list(model["body"].parameters()), "lr": kind(BACKBONE)})
    assert lr.group_ratios == pytest.approx([1, 0.01])
    used = train(model, optimizer, lr, batches()[4:5])
    assert lr.main_group == 0
    assert used[0][0] == pytest.approx(lr.status()["lr"])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_resumed_run_goes_on_exactly_where_the_backbone_comes_last(schedule, kind):
    data, whole, stopped = batches(), network(), network()
    optimizer = fine_tuning(whole, kind, head_first=True)
    expected = train(whole, optimizer, LearnedLR(optimizer, schedule, total_steps=12), data)
    optimizer = fine_tuning(stopped, kind, head_first=True)
    lr = LearnedLR(optimizer, schedule, total_steps=12)
    used = train(stopped, optimizer, lr, data[:7])
    again = fine_tuning(stopped, kind, head_first=True)
    resumed = LearnedLR(again, schedule, total_steps=12)
    resumed.load_state_dict(copy.deepcopy(lr.state_dict()))
    again.load_state_dict(optimizer.state_dict())
    assert used + train(stopped, again, resumed, data[7:]) == expected


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_state_that_names_no_group_means_the_first_as_it_did_in_version_0_1(schedule, kind):
    model = network()
    optimizer = fine_tuning(model, kind, head_first=True)
    lr = LearnedLR(optimizer, schedule, total_steps=12)
    train(model, optimizer, lr, batches()[:5])
    state = lr.state_dict()
    assert state.pop("main_group") == 1
    lr.load_state_dict(state)
    assert lr.main_group == 0
    assert lr.group_ratios == pytest.approx([1, 0.01])
    assert float(lr.get_last_lr()[0]) == pytest.approx(state["lr"])
    assert lr.engine.backend.snapshot()["ratio"] == pytest.approx(state["ratio"])
    assert "main_group" not in lr.state_dict()


def test_a_replay_has_the_lrs_of_every_group():
    model = network()
    optimizer = fine_tuning(model, float, head_first=True)
    lr = LearnedLR(optimizer, "universal", total_steps=12)
    used = train(model, optimizer, lr, batches())
    other = fine_tuning(network(), float, head_first=True)
    replay, found = lr.export_lambda(other), []
    for _ in used:
        found.append(replay.get_last_lr())
        other.step()
        replay.step()
    assert found == used


def test_momentum_is_that_of_the_main_group():
    def first_lr(momentum, size):
        groups = [
            {"params": [nn.Parameter(torch.ones(size))], "lr": 0.1, "momentum": momentum},
            {"params": [nn.Parameter(torch.ones(10))], "lr": 0.2, "momentum": 0.9},
        ]
        lr = LearnedLR(SGD(groups, lr=0.1), "universal", total_steps=9)
        lr.step(1.0)
        return lr.status()["lr"]

    assert first_lr(0.0, 1) == pytest.approx(first_lr(0.5, 1))
    assert first_lr(0.0, 99) == pytest.approx(2 * first_lr(0.5, 99))


FLAT = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from mlrsnet import LearnedLR

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 7))
model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
groups = [{"params": list(layer.parameters()), "lr": lr} for layer, lr in zip(model.module, (0.1, 0.3))]
here = [sum(weight.numel() for weight in group["params"]) for group in groups]
lr = LearnedLR(torch.optim.SGD(groups), "universal", total_steps=5)
with open(f"{folder}/{rank}.txt", "w") as file:
    print(here[0] > here[1], lr.main_group, file=file)
dist.barrier()
os._exit(0)  # gloo's threads can abort a normal exit
"""


def test_processes_that_hold_parts_of_flat_weights_choose_alike(tmp_path):
    """The second process holds more of the second layer than of the first."""
    words = [sys.executable, "-c", FLAT]
    workers = [subprocess.Popen([*words, str(rank), tmp_path], stderr=subprocess.DEVNULL) for rank in range(2)]
    assert [worker.wait(timeout=180) for worker in workers] == [0, 0]
    assert [(tmp_path / f"{rank}.txt").read_text() for rank in range(2)] == ["True 0\n", "False 0\n"]
