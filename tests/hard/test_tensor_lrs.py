"""LRs that are tensors stay their owner's, and train as floats do. Momentum that is cycled is followed."""

import copy
import math

import pytest
import torch
from loops import backward, lrs_of, network, train, weights_of
from torch import nn
from torch.optim import SGD, Adam, AdamW

from mlrsnet import LearnedLR

STEPS = 12
MAKE = {
    "sgd": lambda p, lr: SGD(p, lr=lr, weight_decay=1e-3),
    "momentum": lambda p, lr: SGD(p, lr=lr, momentum=0.9, nesterov=True),
    "adamw": lambda p, lr: AdamW(p, lr=lr),
}


def tensor(lr=0.1):
    return torch.tensor(lr, dtype=torch.float64)


@pytest.fixture(params=["host", "device"])
def where(request):
    if request.param == "device":
        request.getfixturevalue("on_device")


@pytest.mark.usefixtures("where")
def test_the_tensors_of_a_user_stay_his():
    """He may hold them in a graph, in a compiled step, or in a logger."""
    mine, other = tensor(), tensor(0.05)
    model = network()
    optimizer = AdamW([{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": other}], lr=mine)
    LearnedLR(optimizer, total_steps=STEPS)
    used = train(model, optimizer, 3)
    assert optimizer.param_groups[0]["lr"] is mine
    assert optimizer.param_groups[1]["lr"] is other
    assert [float(mine), float(other)] == used[-1] != [0.1, 0.05]
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.param_groups[0]["lr"] is mine
    assert optimizer.param_groups[1]["lr"] is other
    assert [float(mine), float(other)] == used[-1]
    used = train(model, optimizer, 2, begin=3)
    assert [float(mine), float(other)] == used[-1]


@pytest.mark.usefixtures("where")
def test_a_state_with_float_lrs_is_loaded_into_the_tensors():
    model, other = network(), network()
    saved = AdamW(model.parameters(), lr=0.25).state_dict()
    mine = tensor()
    optimizer = AdamW(other.parameters(), lr=mine)
    LearnedLR(optimizer, total_steps=STEPS)
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] is mine
    assert float(mine) == 0.25
    train(other, optimizer, 1)
    assert optimizer.param_groups[0]["lr"] is mine


@pytest.mark.usefixtures("where")
def test_groups_that_share_one_default_get_tensors_of_their_own():
    """torch gives all groups the tensor that it was passed. A group that is added later begins at the first LR, not at ours."""
    mine = tensor()
    model, late = network(), nn.Linear(4, 4)
    optimizer = SGD([{"params": model[0].parameters()}, {"params": model[2].parameters()}], lr=mine)
    assert optimizer.param_groups[0]["lr"] is optimizer.param_groups[1]["lr"]
    lr = LearnedLR(optimizer, total_steps=STEPS)
    assert optimizer.param_groups[0]["lr"] is mine
    assert optimizer.param_groups[1]["lr"] is not mine
    train(model, optimizer, 3)
    optimizer.add_param_group({"params": late.parameters()})
    assert float(optimizer.param_groups[2]["lr"]) == 0.1
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2, 2))], "lr": tensor(0.2)})
    late(torch.ones(2, 4)).sum().backward()
    used = train(model, optimizer, 2, begin=3)
    assert lr.group_ratios == pytest.approx([1, 1, 1, 2])
    assert used[-1] == pytest.approx([used[-1][0]] * 3 + [2 * used[-1][0]])
    assert len({id(group["lr"]) for group in optimizer.param_groups}) == 4


def test_floats_become_tensors_beside_a_tensor_on_a_device(on_device):
    model = network()
    optimizer = SGD([{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.05}], lr=tensor())
    LearnedLR(optimizer, total_steps=STEPS)
    assert all(isinstance(group["lr"], torch.Tensor) for group in optimizer.param_groups)
    train(model, optimizer, 2)
    assert lrs_of(optimizer)[1] == pytest.approx(lrs_of(optimizer)[0] / 2)


def test_floats_stay_floats_beside_a_tensor_on_a_cpu():
    model = network()
    optimizer = SGD([{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.05}], lr=tensor())
    LearnedLR(optimizer, total_steps=STEPS)
    train(model, optimizer, 2)
    assert isinstance(optimizer.param_groups[1]["lr"], float)
    assert lrs_of(optimizer)[1] == pytest.approx(lrs_of(optimizer)[0] / 2)


def whole_run(make, lr_of, *, steps=150, dtype=torch.float64, tells=True):
    model = network(dtype)
    optimizer = make(model.parameters(), lr_of())
    lr = LearnedLR(optimizer, total_steps=steps)
    used = [one for (one,) in train(model, optimizer, steps // 2, lr=lr if tells else None)]
    lr.validate(1.0)
    for loss in (1.1, 1.2, 1.3):
        lr.validate(loss)
    used += [one for (one,) in train(model, optimizer, steps // 4, begin=steps // 2, lr=lr if tells else None)]
    lr.anneal(steps // 8)
    used += [one for (one,) in train(model, optimizer, steps // 8, begin=steps * 3 // 4, lr=lr if tells else None)]
    return used, lr


@pytest.mark.filterwarnings("ignore:.*validate.loss. got nothing below")
@pytest.mark.usefixtures("where")
@pytest.mark.parametrize("tells", [True, False], ids=["with losses", "without losses"])
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_float_and_tensor_lrs_train_alike(make, tells):
    """After step 64 they differed by up to 1.4 times."""
    used, lr = whole_run(make, tensor, tells=tells)
    expected, other = whole_run(make, lambda: 0.1, tells=tells)
    assert used == pytest.approx(expected, rel=1e-6)
    assert lr.history == pytest.approx(other.history, rel=1e-6)
    seen, known = lr.status(), other.status()
    assert seen.keys() == known.keys()
    for name, value in known.items():
        assert seen[name] == (pytest.approx(value, rel=1e-6, nan_ok=True) if isinstance(value, float) else value), name


@pytest.mark.usefixtures("where")
@pytest.mark.parametrize("name", ["paper", "horizon"])
def test_float_and_tensor_lrs_train_alike_under_a_network(name, request):
    schedule, runs = request.getfixturevalue(name), []
    for lr_of in (lambda: 0.1, tensor):
        model = network(torch.float64)
        optimizer = AdamW(model.parameters(), lr=lr_of())
        lr = LearnedLR(optimizer, schedule, total_steps=40, num_classes=5, scale=0.01)
        runs.append([one for (one,) in train(model, optimizer, 40, lr=lr)])
    assert runs[1] == pytest.approx(runs[0], rel=1e-4)


@pytest.mark.usefixtures("where")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_float_and_tensor_lrs_train_alike_in_low_precision(make, dtype):
    """An LR in float32 is rounded, and a training amplifies that: so only nearly."""
    runs = []
    for lr_of in (lambda: 0.1, lambda: torch.tensor(0.1)):
        model = network(dtype)
        optimizer = make(model.parameters(), lr_of())
        LearnedLR(optimizer, total_steps=100)
        runs.append(torch.tensor(train(model, optimizer, 100)))
    ratios = runs[1] / runs[0]
    assert float(ratios.log().abs().median()) < 0.05
    assert 0.5 < float(ratios.min()) <= float(ratios.max()) < 2


def scale(m):
    return math.sqrt((1 - m) / (1 + m))


def set_momentum(optimizer, value):
    for group in optimizer.param_groups:
        if "momentum" in group:
            group["momentum"] = value
        else:
            group["betas"] = (value, *group["betas"][1:])


@pytest.mark.parametrize(
    "make", [lambda p, lr: SGD(p, lr=lr, momentum=0.9), lambda p, lr: AdamW(p, lr=lr)], ids=["momentum", "adamw"]
)
def test_a_momentum_that_is_cycled_is_followed_at_once(make, kind):
    """As OneCycleLR does it: the step that follows is longer by just what the lower momentum takes from it."""
    model = network()
    optimizer = make(model.parameters(), kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    train(model, optimizer, 5)
    twin, own = copy.deepcopy((model, lr))
    for m in (0.8, 0.95, 0.5):
        with_m, beside = copy.deepcopy((twin, own))
        set_momentum(beside.optimizer, m)
        (changed,) = train(with_m, beside.optimizer, 1, begin=5)[0]
        untouched, plain = copy.deepcopy((twin, own))
        (kept,) = train(untouched, plain.optimizer, 1, begin=5)[0]
        assert changed / kept == pytest.approx(scale(m) / scale(0.9), rel=1e-6)


def test_a_whole_cycle_of_momentum_trains_on(kind):
    model = network()
    optimizer = AdamW(model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=40)
    used = []
    for step in range(40):
        set_momentum(optimizer, 0.85 + 0.1 * abs(step / 20 - 1))
        used += train(model, optimizer, 1, begin=step)
    assert lr.last_epoch == 40
    assert all(0 < one < 1 for (one,) in used)


def test_momentum_that_is_switched_on_in_mid_training_leaves_plain_sgd_behind(kind):
    """What plain SGD knows of its next step is not true of one with momentum, and must not shorten it for ever."""
    model = network()
    optimizer = SGD(model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=60)
    train(model, optimizer, 20)
    set_momentum(optimizer, 0.5)
    train(model, optimizer, 10, begin=20)
    twin, own = copy.deepcopy((model, lr))
    for weight in twin.parameters():  # gradients become small: plain SGD may take longer steps, and so may this one
        weight.register_hook(lambda gradient: gradient * 1e-3)
    (before,), *_, (after,) = train(twin, own.optimizer, 20, begin=30)
    assert after > before


def test_betas_that_are_tensors_are_read(kind):
    model, plain = network(), network()
    betas = torch.tensor(0.9, dtype=torch.float64), torch.tensor(0.999, dtype=torch.float64)
    optimizer, other = (
        Adam(model.parameters(), lr=tensor(), betas=betas, foreach=False),
        Adam(plain.parameters(), lr=tensor(), foreach=False),
    )
    LearnedLR(optimizer, total_steps=STEPS)
    LearnedLR(other, total_steps=STEPS)
    used, expected = train(model, optimizer, STEPS), train(plain, other, STEPS)
    assert [one for (one,) in used] == pytest.approx([one for (one,) in expected], rel=1e-4)
    torch.testing.assert_close(weights_of(model), weights_of(plain), rtol=1e-3, atol=1e-4)
    backward(model, 0)
