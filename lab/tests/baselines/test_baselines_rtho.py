"""RTHO against its equations and against finite differences."""

import math

import pytest
import torch
from methods import CURVATURES, START, Small, advance, lr, parameter, quadratic, validation
from torch import nn

from mlrsnet_lab.baselines import RTHO
from mlrsnet_lab.baselines.rtho import clipped


def test_rtho_takes_the_steps_of_its_paper():
    w = parameter(2.0)  # f = 3 w^2 / 2, H = 3; E = (w - 0.5)^2
    optimizer = RTHO([w], lr=0.1, hyper_lr=0.02)
    w1, z1 = 2 - 0.1 * 6, -6.0
    alpha2 = 0.1 - 0.02 * 2 * (w1 - 0.5) * z1
    w2, z2 = w1 - alpha2 * 3 * w1, (1 - alpha2 * 3) * z1 - 3 * w1
    alpha3 = alpha2 - 0.02 * 2 * (w2 - 0.5) * z2
    w3, z3 = w2 - alpha3 * 3 * w2, (1 - alpha3 * 3) * z2 - 3 * w2
    for alpha, value, z in ((0.1, w1, z1), (alpha2, w2, z2), (alpha3, w3, z3)):
        advance(optimizer, w, loss=lambda w: quadratic(w, (3.0,)))
        assert lr(optimizer) == pytest.approx(alpha, rel=1e-12)
        assert w.item() == pytest.approx(value, rel=1e-12)
        assert optimizer.state[w]["sensitivity"].item() == pytest.approx(z, rel=1e-12)
    assert optimizer.last_hypergradient == pytest.approx(2 * (w2 - 0.5) * z2)


def test_rtho_with_momentum_carries_the_velocitys_derivative_too():
    w = parameter(2.0)  # f = 3 w^2 / 2; mu = 0.5
    optimizer = RTHO([w], lr=0.1, hyper_lr=0.005, momentum=0.5)
    v1, y1 = 6.0, 0.0
    w1, z1 = 2 - 0.1 * v1, -v1
    alpha2 = 0.1 - 0.005 * 2 * (w1 - 0.5) * z1
    v2, y2 = 0.5 * v1 + 3 * w1, 0.5 * y1 + 3 * z1
    w2, z2 = w1 - alpha2 * v2, z1 - v2 - alpha2 * y2
    alpha3 = alpha2 - 0.005 * 2 * (w2 - 0.5) * z2
    v3, y3 = 0.5 * v2 + 3 * w2, 0.5 * y2 + 3 * z2
    w3, z3 = w2 - alpha3 * v3, z2 - v3 - alpha3 * y3
    for alpha, value, z in ((0.1, w1, z1), (alpha2, w2, z2), (alpha3, w3, z3)):
        advance(optimizer, w, loss=lambda w: quadratic(w, (3.0,)))
        assert lr(optimizer) == pytest.approx(alpha, rel=1e-12)
        assert w.item() == pytest.approx(value, rel=1e-12)
        assert optimizer.state[w]["sensitivity"].item() == pytest.approx(z, rel=1e-12)


def test_rthos_lr_never_falls_below_zero_and_comes_back():
    w = parameter(2.0)
    optimizer = RTHO([w], lr=0.1, hyper_lr=100.0)
    for validate, expected in ((lambda: -w.sum(), None), (lambda: -w.sum(), 0.0), (lambda: w.sum(), None)):
        optimizer.step(lambda: quadratic(w, (1.0,)), validate)
        assert expected is None or lr(optimizer) == expected
    assert lr(optimizer) > 0


@pytest.mark.parametrize("options", [{}, {"momentum": 0.8}, {"momentum": 0.5, "weight_decay": 0.1, "clip_norm": 0.3}])
@pytest.mark.parametrize("kind", ["mlp", "batch-norm", "lstm", "sum"])
def test_rthos_hypergradient_is_the_derivative_of_the_whole_training(kind, options):
    small, step = Small(kind), 1e-5

    def after(alpha):
        small.train(alpha, **options)
        return small.loss(7).item()

    hypergradient = small.train(0.2, **options).hypergradient(lambda: small.loss(7))
    difference = (after(0.2 + step) - after(0.2 - step)) / (2 * step)
    assert hypergradient == pytest.approx(difference, rel=1e-6)
    assert abs(hypergradient) > 1e-3


def test_rthos_hypergradient_on_a_quadratic_is_that_of_its_closed_form():
    """w_n = (1 - alpha a)^n w_0."""
    w = parameter(*START)
    optimizer = RTHO([w], lr=0.1, hyper_lr=0.0)
    for _ in range(5):
        advance(optimizer, w)
    expected = sum(
        2 * ((1 - 0.1 * a) ** 5 * w0 - 0.5) * -5 * a * (1 - 0.1 * a) ** 4 * w0
        for a, w0 in zip(CURVATURES, START, strict=True)
    )
    assert optimizer.hypergradient(lambda: validation(w)) == pytest.approx(expected, rel=1e-9)


def test_a_clipped_gradient_and_its_derivative_are_torchs():
    gradients, along = [torch.tensor([3.0, 0.0]).double(), torch.tensor([4.0]).double()], torch.tensor([1.0, 2.0, -1.0])
    found, derivative = clipped(gradients, list(along.double().split([2, 1])), 2.0)

    def by_torch(values):
        weights = [parameter(*values[:2]), parameter(*values[2:])]
        for w in weights:
            w.grad = w.detach().clone()
        nn.utils.clip_grad_norm_(weights, 2.0)
        return torch.cat([w.grad for w in weights])

    flat, direction = torch.cat(gradients), 1e-6 * along.double()
    assert torch.allclose(torch.cat(found), by_torch(flat.tolist()), rtol=1e-9)
    numeric = (by_torch((flat + direction).tolist()) - by_torch((flat - direction).tolist())) / 2e-6
    assert torch.allclose(torch.cat(derivative), numeric, rtol=1e-6)
    assert clipped(gradients, gradients, 5.1) == (gradients, gradients)


def test_batch_norms_see_training_batches_only():
    small = Small("batch-norm")
    optimizer = small.train(0.1, steps=4)
    assert small.model[1].num_batches_tracked == 4
    before = {name: value.clone() for name, value in small.model.named_buffers()}
    optimizer.hypergradient(lambda: small.loss(7))
    assert all(torch.equal(value, before[name]) for name, value in small.model.named_buffers())
    means = small.model[1].running_mean.clone()
    plain = torch.optim.SGD(small.model.parameters(), lr=0.1)
    small.model.load_state_dict(small.start)
    for step in range(4):
        plain.zero_grad()
        small.loss(step).backward()
        plain.step()
    assert torch.allclose(means, small.model[1].running_mean, rtol=1e-12)


def test_rtho_differentiates_attention_twice():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True)
    optimizer, x = RTHO(layer.parameters(), lr=0.01), torch.randn(2, 5, 8)
    for _ in range(3):
        optimizer.step(lambda: layer(x).pow(4).mean(), lambda: layer(x).pow(4).mean())
    assert math.isfinite(optimizer.last_hypergradient)
    assert optimizer.last_hypergradient != 0


def test_rtho_leaves_gradients_and_settings_of_torch_alone():
    small, seen = Small("lstm"), {}
    small.model.lstm.register_forward_pre_hook(lambda *_: seen.update(lstm=torch.backends.cudnn.enabled))
    small.model.out.register_forward_pre_hook(lambda *_: seen.update(out=torch.backends.cudnn.enabled))
    small.train(0.1, steps=2)
    assert seen == {"lstm": False, "out": True}  # cuDNN's LSTM has no second derivative
    assert torch.backends.cudnn.enabled
    assert all(p.grad is None for p in small.model.parameters())
