"""`mlrsnet.preview`: what it says before training, how near the training it is, and that it leaves everything as it was."""

import copy
import math
import random
import sys

import numpy as np
import pytest
import torch
from cases import NETWORKS, Task
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.optimizer import register_optimizer_step_post_hook

from mlrsnet import LearnedLR, preview
from mlrsnet.default import Size

STEPS = 300
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=5e-4),
    "Adam": lambda p: torch.optim.Adam(p),
    "AdamW": lambda p: torch.optim.AdamW(p, weight_decay=0.01),
}


class Transformer(nn.Module):
    """Two blocks that predict the next of 11 tokens."""

    def __init__(self, width=16, length=12):
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, width), nn.Embedding(length, width)
        block = nn.TransformerEncoderLayer(width, 2, 4 * width, dropout=0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, 11)
        self.mask = nn.Transformer.generate_square_subsequent_mask(length).double()

    def forward(self, x):
        return self.out(self.blocks(self.tokens(x) + self.places.weight, mask=self.mask, is_causal=True)).flatten(0, 1)


def mlp():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def cnn():
    convolution = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*convolution, nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))


def digits(seed=1):
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    chance = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        rows = torch.randint(1400, (50,), generator=chance)
        yield images[rows].double() / 16, labels[rows]


def tokens(seed=1):
    """Each token is the one before plus a step of its own sequence, now and then a wrong one."""
    chance = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        first, step = torch.randint(11, (2, 32, 1), generator=chance)
        text = (first + step * torch.arange(13)) % 11
        wrong = torch.rand(32, 13, generator=chance) < 0.1
        text[wrong] = torch.randint(11, (int(wrong.sum()),), generator=chance)
        yield text[:, :-1], text[:, 1:].flatten()


TRAININGS = [
    *((mlp, digits, name) for name in OPTIMIZERS),
    *((cnn, digits, name) for name in ("SGD", "momentum", "AdamW")),
    *((Transformer, tokens, name) for name in ("momentum", "Adam", "AdamW")),
]


def adamw(model=None, **options):
    torch.manual_seed(0)
    return torch.optim.AdamW((model or Task().model).parameters(), **options)


@pytest.mark.parametrize(("make", "batches", "name"), TRAININGS)
def test_the_lrs_of_the_first_half_are_near_those_that_the_training_then_gets(make, batches, name):
    """Near enough to tell 1e-3 from 1e-1. docs/learned_lr.md says how far off it was in 18 other trainings."""
    torch.manual_seed(0)
    model = make().double()
    optimizer, lr, found = OPTIMIZERS[name](model.parameters()), None, None
    for x, y in batches():
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if lr is None:
            found = preview(optimizer, total_steps=STEPS)
            lr = LearnedLR(optimizer, total_steps=STEPS)
        lr.step(loss)
        optimizer.step()
    for share, factor in ((0.1, 3), (0.25, 3), (0.5, 6)):
        assert 1 / factor < lr.history[round(share * STEPS)] / found.at(share) < factor


@pytest.mark.parametrize("name", [*OPTIMIZERS, "capturable"])
def test_nothing_of_the_training_changes(name):
    """Weights, gradients, state, groups, hooks and random numbers, bit for bit; and the training goes on as without."""

    def train(looks):
        task, called = Task(), []
        rates = {"lr": torch.tensor(0.01), "foreach": False} if name == "capturable" else None
        optimizer = (
            torch.optim.Adam(task.model.parameters(), **rates) if rates else OPTIMIZERS[name](task.model.parameters())
        )
        torch.optim.lr_scheduler.StepLR(optimizer, 5)  # wraps optimizer.step
        optimizer.register_step_post_hook(lambda *_: called.append("own"))
        hook = register_optimizer_step_post_hook(lambda *_: called.append("all"))
        torch.manual_seed(3)
        for step in range(6):
            task.backward(step, optimizer)
            before = _everything(task, optimizer)
            if looks:
                preview(optimizer, total_steps=50)
                preview(optimizer, "universal", total_steps=50, num_classes=5)
                preview(optimizer, "universal-lstm", total_steps=50)
            _assert_same(_everything(task, optimizer), before)
            optimizer.step()
        hook.remove()
        assert called == ["own", "all"] * 6 or called == ["all", "own"] * 6
        return task.weights()

    assert torch.equal(train(looks=True), train(looks=False))


def _everything(task, optimizer):
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    hooks = {key: list(value) for key, value in vars(optimizer).items() if "hooks" in key}
    return copy.deepcopy(
        {
            "weights": task.weights(),
            "gradients": [parameter.grad for parameter in task.model.parameters()],
            "state": optimizer.state_dict(),
            "groups": groups,
            "hooks": hooks,
            "names": sorted(vars(optimizer)),
            "torch": torch.get_rng_state(),
            "numpy": np.random.get_state()[1].tolist(),
            "python": random.getstate(),
        }
    )


def _assert_same(now, before):
    assert now["hooks"] == before["hooks"]
    assert now["names"] == before["names"]
    assert now["python"] == before["python"]
    torch.testing.assert_close(
        {key: now[key] for key in ("weights", "gradients", "state", "groups", "torch", "numpy")},
        {key: before[key] for key in ("weights", "gradients", "state", "groups", "torch", "numpy")},
        rtol=0,
        atol=0,
    )


def test_sgd_without_gradients_gets_the_length_of_its_steps_and_hears_what_to_do():
    task = Task()
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.1)
    found = preview(optimizer, total_steps=100)
    assert found.lrs is None
    assert math.isnan(found.at(0.5))
    assert "call loss.backward() for one batch, then preview(...)" in str(found)
    assert "% of the weights' length" in str(found)
    task.loss(0).backward()
    again = preview(optimizer, total_steps=100)
    np.testing.assert_allclose(again.moves, found.moves, rtol=1e-12)
    assert 0 < again.at(0.5) < math.inf


def test_plain_sgd_gets_exactly_the_lr_that_its_gradient_asks_for():
    """Without noise in it: the first step is measured, and the LR of the second follows from it alone."""
    task = Task()
    optimizer = torch.optim.SGD(task.model.double().parameters(), lr=0.1)
    loss = cross_entropy(task.model(task.inputs[0].double()), task.labels[0])
    loss.backward()
    found = preview(optimizer, total_steps=40, losses=[1.0, 1.0])
    lr = LearnedLR(optimizer, total_steps=40)
    for _ in range(2):
        lr.step(loss)
        optimizer.step()
    assert lr.history[1] == pytest.approx(found.lrs[1], rel=1e-3)


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.NAdam, torch.optim.RMSprop])
def test_optimizers_that_divide_by_the_gradients_size_need_none(make):
    task = Task()
    optimizer = make(task.model.parameters())
    without = preview(optimizer, total_steps=100)
    (1000 * task.loss(0)).backward()
    np.testing.assert_allclose(preview(optimizer, total_steps=100).lrs, without.lrs, rtol=0.3)


class Signs(torch.optim.Optimizer):
    """An optimizer of somebody else: subtracts the sign of the gradient."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        with torch.no_grad():
            for group in self.param_groups:
                for weight in group["params"]:
                    weight -= group["lr"] * weight.grad.sign()


class Tied(Signs):
    """Its step needs something that only the optimizer itself has."""

    def __init__(self, params, lr):
        super().__init__(params, lr)
        self.table = {weight: 0 for group in self.param_groups for weight in group["params"]}

    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                self.table[weight] += 1
        super().step()


def test_optimizers_of_others_work_and_one_that_does_not_is_told():
    task = Task()
    known = preview(Signs(task.model.parameters(), lr=0.01), total_steps=100)
    adam = preview(torch.optim.Adam(task.model.parameters(), betas=(0.0, 0.999)), total_steps=100)
    np.testing.assert_allclose(known.lrs * Size().adaptive, adam.lrs, rtol=0.1)  # both move every weight by the LR
    unknown = preview(Tied(task.model.parameters(), lr=0.01), total_steps=100)
    assert unknown.lrs is None
    assert "a copy of Tied could not take a step" in str(unknown)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_schedule_that_measures_nothing_is_previewed_exactly(name):
    """Given the losses, as LearnedLR then does."""
    torch.manual_seed(1)
    schedule, losses = NETWORKS[name](), np.linspace(1.6, 0.3, 30)
    optimizer = adamw(lr=0.02)
    found = preview(optimizer, schedule, total_steps=30, losses=losses, num_classes=5, scale=2.0, max_lr=0.01)
    lr = LearnedLR(optimizer, schedule, total_steps=30, num_classes=5, scale=2.0, max_lr=0.01)
    for loss in losses:
        lr.step(float(loss))
        optimizer.step()
    np.testing.assert_array_equal(found.lrs, lr.history)


def test_the_cosine_is_at_the_optimizers_own_lr_which_changes_nothing_else():
    low, high = (preview(adamw(lr=rate), total_steps=200) for rate in (1e-4, 1e-2))
    np.testing.assert_array_equal(low.lrs, high.lrs)
    assert (low.cosine.max(), high.cosine.max()) == pytest.approx((1e-4, 1e-2))
    assert low.cosine[:10] == pytest.approx([1e-4 * (step + 1) / 10 for step in range(10)])


def test_parameter_groups_are_told():
    task = Task()
    groups = [{"params": task.model[0].parameters(), "lr": 1e-3}, {"params": task.model[2].parameters(), "lr": 1e-4}]
    found = preview(torch.optim.AdamW(groups), total_steps=100)
    assert "the others keep their ratio" in str(found)


def test_a_trained_network_is_seen_to_begin_with_short_steps():
    fresh, trained = (nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)) for _ in range(2))
    with torch.no_grad():
        trained[1].weight.uniform_(0.6, 1.4)
    short, full = (preview(adamw(model), total_steps=100).moves for model in (trained, fresh))
    assert short[2] / full[2] == pytest.approx(0.3, rel=0.05)
    assert 0.3 < short[80] / full[80] < 0.5  # half of it once the loss has fallen to 0
    told = preview(adamw(trained), total_steps=100, trained=False).moves
    np.testing.assert_allclose(told, full, rtol=0.05)


def test_a_long_training_is_as_quick_and_of_the_same_form():
    short, long = (preview(adamw(), total_steps=steps) for steps in (1000, 1_000_000))
    assert len(long.lrs) == len(long.steps) == 1000
    assert long.steps[-1] == 999_000
    np.testing.assert_allclose(long.lrs, short.lrs * 1000**-0.15, rtol=1e-6)


def test_the_text_has_curves_numbers_and_words(monkeypatch):
    found = preview(adamw(), total_steps=100)
    text = str(found)
    assert repr(found) == text
    assert "universal for AdamW, 100 steps" in text
    assert "█" in text
    assert f"{found.at(0.25):.3g}" in text
    assert (
        f"each step moves the weights by about {100 * found.moves.max():.2g} % of their length, the cosine's by" in text
    )
    monkeypatch.setattr(sys, "stdout", type("Old", (), {"encoding": "ascii"})())
    assert str(found).isascii()
    assert "#" in str(found)


def test_a_notebook_shows_text_and_picture_and_text_alone_without_matplotlib(monkeypatch, tmp_path):
    found = preview(adamw(), total_steps=100)
    assert len(found.plot(tmp_path / "preview.png").lines) == 2
    assert (tmp_path / "preview.png").stat().st_size > 5000
    assert "data:image/png;base64," in found._repr_html_()
    without = preview(torch.optim.SGD(Task().model.parameters(), lr=0.1), total_steps=100)
    assert "weights' length" in without.plot().get_ylabel()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert found._repr_html_().startswith("<pre>universal for AdamW")
    assert "<img" not in found._repr_html_()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: preview(Task().model, total_steps=10),
            TypeError,
            "optimizer must be a torch.optim.Optimizer, got Seq",
        ),
        (lambda: preview(adamw(), total_steps=None), ValueError, "total_steps must be a whole number >= 1, got None"),
        (lambda: preview(adamw(), total_steps=10, losses=[]), ValueError, "losses must be a non-empty list of finite"),
        (
            lambda: preview(adamw(), total_steps=10, losses=["a"]),
            ValueError,
            "losses must be a non-empty list of finite",
        ),
        (lambda: preview(adamw(), total_steps=10).at(50), ValueError, r"progress must be in \[0, 1\], a share of the"),
        (
            lambda: preview(adamw(), "ptb-lstm", total_steps=10),
            ValueError,
            "num_classes must be given for the schedule",
        ),
        (
            lambda: preview(torch.optim.LBFGS(Task().model.parameters()), total_steps=10),
            ValueError,
            "got LBFGS, which evaluates the loss several times",
        ),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
