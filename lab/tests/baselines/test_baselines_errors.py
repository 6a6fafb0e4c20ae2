"""What L4, HD and RTHO do with losses that are not finite, and with mistakes."""

import copy
import math

import pytest
import torch
from methods import METHODS, START, advance, lr, parameter, quadratic
from torch import nn

from mlrsnet_lab.baselines import HDSGD, L4, RTHO, HDAdam

# What is not finite


def snapshot(optimizer, w):
    return copy.deepcopy((optimizer.state_dict(), w.detach()))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("steps", [0, 2])
def test_a_loss_that_is_not_finite_changes_nothing_and_is_told_once(make, bad, steps):
    w = parameter(*START)
    optimizer = make([w])
    for _ in range(steps):
        advance(optimizer, w)
    before = snapshot(optimizer, w)
    with pytest.warns(UserWarning, match="was not finite: .* skipped this step") as told:
        for _ in range(2):
            advance(optimizer, w, loss=lambda w: bad * quadratic(w))
    assert len(told) == 1
    assert told[0].filename == advance.__code__.co_filename  # where the user calls step()
    after = snapshot(optimizer, w)
    assert torch.equal(before[1], after[1])
    for old, new in zip(before[0]["param_groups"], after[0]["param_groups"], strict=True):
        assert {key: new[key] for key in old} == old
    assert str(before[0]["state"]) == str(after[0]["state"])
    advance(optimizer, w)
    assert w.isfinite().all()


def test_a_derivative_of_rtho_that_overflows_begins_anew_and_the_training_goes_on():
    w = parameter(*START)
    optimizer = METHODS["rtho-momentum"]([w])
    advance(optimizer, w)
    optimizer.state[w]["sensitivity"].fill_(1e308)
    before = lr(optimizer)
    with pytest.warns(UserWarning, match="RTHO kept the LR and restarts the derivative from 0"):
        advance(optimizer, w, loss=lambda w: quadratic(w))
        advance(optimizer, w)
    assert lr(optimizer) != before
    assert optimizer.state[w]["sensitivity"].abs().max() < 100
    assert w.isfinite().all()


# Mistakes


BAD = {
    "lr": (lambda w: HDSGD([w], lr=-0.1), "lr must be >= 0, got -0.1"),
    "lr nan": (lambda w: HDAdam([w], lr=math.nan), "lr must be a finite number, got nan"),
    "lr text": (lambda w: RTHO([w], lr="0.1"), "lr must be a finite number, got '0.1'"),
    "tensor lr": (lambda w: HDSGD([w], lr=torch.tensor(0.1)), "lr must be a float, got a tensor"),
    "hyper_lr": (lambda w: HDSGD([w], hyper_lr=-1), "hyper_lr must be >= 0, got -1"),
    "hyper_lr of rtho": (lambda w: RTHO([w], hyper_lr=None), "hyper_lr must be a finite number, got None"),
    "momentum": (lambda w: HDSGD([w], momentum=1.0), "momentum must be in [0, 1), got 1.0"),
    "nesterov": (lambda w: HDSGD([w], nesterov=True), "momentum must be > 0 with nesterov=True, got 0.0"),
    "nesterov text": (lambda w: HDSGD([w], nesterov="no"), "nesterov must be True or False, got 'no'"),
    "betas": (lambda w: HDAdam([w], betas=0.9), "betas must be two numbers such as (0.9, 0.999), got 0.9"),
    "one beta": (lambda w: L4([w], betas=(0.9, 1.0)), "each of betas must be in [0, 1), got 1.0"),
    "eps": (lambda w: HDAdam([w], eps=0.0), "eps must be > 0, got 0.0"),
    "weight_decay": (lambda w: RTHO([w], weight_decay=-1.0), "weight_decay must be >= 0, got -1.0"),
    "clip_norm": (lambda w: RTHO([w], clip_norm=0.0), "clip_norm must be > 0, got 0.0: pass None for no clipping"),
    "form": (lambda w: L4([w], form="sgd"), "form must be one of momentum, adam; got 'sgd'"),
    "fraction": (lambda w: L4([w], fraction=0.0), "fraction must be > 0, got 0.0"),
    "target": (lambda w: L4([w], target=1.0), "target must be in [0, 1), got 1.0"),
    "initial_target": (lambda w: L4([w], initial_target=2), "initial_target must be in [0, 1), got 2"),
    "forget_steps": (lambda w: L4([w], forget_steps=0), "forget_steps must be > 0, got 0"),
    "lr of a group": (lambda w: HDSGD([{"params": [w], "lr": -2.0}]), "lr must be >= 0, got -2.0"),
    "integers": (lambda w: HDSGD([torch.ones(2, dtype=torch.int64)]), "real floating-point tensors, got torch.int64"),
    "complex": (lambda w: RTHO([nn.Parameter(torch.ones(1, dtype=torch.complex64))]), "got torch.complex64"),
    "no number": (lambda w: L4([w]).step("2.3"), "the loss must be a tensor or a number, got '2.3'"),
    "many losses": (lambda w: L4([w]).step(torch.ones(3)), "the loss must be one number, got a tensor of shape (3,)"),
    "negative loss": (lambda w: L4([w]).step(-1.0), "the loss must be >= 0 for L4, got -1.0"),
    "no closure": (lambda w: RTHO([w]).step(None, None), "train_closure must be a function that returns a loss"),
    "no graph": (
        lambda w: RTHO([w]).step(lambda: quadratic(w).detach(), lambda: quadratic(w)),
        "train_closure must return a loss with its graph",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_named_with_its_rule_and_value(case):
    attempt, message = BAD[case]
    with pytest.raises((ValueError, TypeError)) as found:
        attempt(parameter(*START))
    assert message in str(found.value)
    assert "\n" not in str(found.value)


def test_sparse_gradients_are_refused(make):
    layer = nn.Embedding(4, 2, sparse=True)
    optimizer, before = make(layer.parameters()), layer.weight.detach().clone()
    with pytest.raises(TypeError, match="gradients must be dense, got a sparse one: pass sparse=False to its layer"):
        advance(optimizer, layer.weight, loss=lambda w: layer(torch.tensor([1, 3])).pow(2).sum())
    assert torch.equal(layer.weight, before)


def test_a_tensor_lr_that_is_set_later_is_refused():
    w = parameter(*START)
    for optimizer in (HDSGD([w]), RTHO([w])):
        optimizer.param_groups[0]["lr"] = torch.tensor(0.1)
        with pytest.raises(ValueError, match="lr must be a float, got a tensor"):
            advance(optimizer, w)
