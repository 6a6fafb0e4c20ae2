"""Parameter groups: which of them gets the schedule's own LR, and what the others get."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW

from mlrsnet import LearnedLR

SCHEDULES = ("universal", "universal-lstm")
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
    lr = LearnedLR(SGD(groups, lr=0.1), total_steps=9)
    assert lr.main_group == 2
    assert lr.group_ratios == pytest.approx([1 / 3, 1, 1])
    assert "group LRs times 0.3333, 1, 1" in repr(lr)
    assert repr(LearnedLR(SGD(network().parameters(), lr=0.1), total_steps=9)).endswith("step 0 of 9)")


@pytest.mark.parametrize("order", [1, -1])
def test_as_many_weights_at_two_lrs_take_the_larger_one(order):
    groups = [{"params": [nn.Parameter(torch.ones(3))], "lr": lr} for lr in (0.1, 0.4)[::order]]
    assert LearnedLR(SGD(groups), total_steps=9).group_ratios == pytest.approx([0.25, 1.0][::order])


def test_weights_that_are_not_trained_do_not_decide():
    model = network()
    model["body"].requires_grad_(False)
    assert LearnedLR(fine_tuning(model, float), total_steps=9).group_ratios == pytest.approx([0.01, 1])


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
    assert used[0][1] == pytest.approx(0.01 * used[0][0])


def test_the_size_of_the_network_is_that_of_the_first_step(kind):
    """Or the LR of the head would jump where layers join, and once more where the run is resumed."""
    model = network()
    optimizer = AdamW(model["head"].parameters(), lr=kind(HEAD))
    lr = LearnedLR(optimizer, total_steps=12)
    train(model, optimizer, lr, batches()[:4])
    facts = [lr.status()[name] for name in ("matrices", "parameters", "has_norms")]
    optimizer.add_param_group({"params": list(model["body"].parameters()), "lr": kind(BACKBONE)})
    train(model, optimizer, lr, batches()[4:6])
    assert [lr.status()[name] for name in ("matrices", "parameters", "has_norms")] == facts
    again = AdamW(optimizer.param_groups, lr=kind())
    resumed = LearnedLR(again, total_steps=12)
    resumed.load_state_dict(lr.state_dict())
    again.load_state_dict(optimizer.state_dict())
    train(model, again, resumed, batches()[6:7])
    assert [resumed.status()[name] for name in ("matrices", "parameters", "has_norms")] == facts
    assert facts[1] == sum(weight.numel() for weight in model["head"].parameters())


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


def test_a_replay_has_the_lrs_of_every_group():
    model = network()
    optimizer = fine_tuning(model, float, head_first=True)
    lr = LearnedLR(optimizer, total_steps=12)
    used = train(model, optimizer, lr, batches())
    other = fine_tuning(network(), float, head_first=True)
    replay, found = lr.export_lambda(other), []
    for _ in used:
        found.append(replay.get_last_lr())
        other.step()
        replay.step()
    assert found == used


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_momentum_is_that_of_the_main_group(schedule):
    def first_lr(momentum, size):
        groups = [
            {"params": [nn.Parameter(torch.ones(size))], "lr": 0.1, "momentum": momentum},
            {"params": [nn.Parameter(torch.ones(10))], "lr": 0.2, "momentum": 0.9},
        ]
        lr = LearnedLR(SGD(groups, lr=0.1), schedule, total_steps=9)
        lr.step(1.0)
        lr.optimizer.step()
        return lr.status()["lr"]

    assert first_lr(0.0, 1) == pytest.approx(first_lr(0.5, 1))
    assert first_lr(0.0, 99) > 1.5 * first_lr(0.5, 99)
