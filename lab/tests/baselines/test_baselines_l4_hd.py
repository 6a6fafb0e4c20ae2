"""L4 and HD: their papers' equations worked out by hand."""

import math

import pytest
import torch
from methods import START, advance, backward, lr, parameter, quadratic

from mlrsnet_lab.baselines import HDSGD, L4, RTHO, HDAdam

# L4 against its Algorithm 1


def test_l4_mom_takes_the_steps_of_its_paper():
    w = parameter(2.0)  # f = w^2 / 2
    optimizer = L4([w])
    # Step 1: L = 2, grad = 2. m = 0.1 * 2 = 0.2, corrected by 1 - 0.9: 2. L_min = 0.75 * 2 = 1.5.
    eta = 0.15 * (2 - 0.9 * 1.5) / (2 * 2)
    advance(optimizer, w, loss=lambda w: quadratic(w, (1.0,)))
    first = 2 - eta * 2
    assert lr(optimizer) == pytest.approx(eta, rel=1e-9)
    assert w.item() == pytest.approx(first, rel=1e-9)
    # Step 2: L_min has grown by 1/1000 to 1.5015, and is below this loss (about 1.905), so it stays.
    loss = first**2 / 2
    assert loss > 1.5015
    m = (0.9 * 0.2 + 0.1 * first) / (1 - 0.81)
    eta = 0.15 * (loss - 0.9 * 1.5015) / m**2
    advance(optimizer, w, loss=lambda w: quadratic(w, (1.0,)))
    second = first - eta * m
    assert lr(optimizer) == pytest.approx(eta, rel=1e-9)
    assert w.item() == pytest.approx(second, rel=1e-9)
    # Step 3, where the loss is below what was thought to be attainable.
    with torch.no_grad():
        w.fill_(1.0)
    m = (0.9 * (0.9 * 0.2 + 0.1 * first) + 0.1 * 1.0) / (1 - 0.729)
    eta = 0.15 * (0.5 - 0.9 * 0.5) / m**2
    advance(optimizer, w, loss=lambda w: quadratic(w, (1.0,)))
    assert lr(optimizer) == pytest.approx(eta, rel=1e-9)
    assert optimizer.param_groups[0]["min_loss"] == pytest.approx(0.5 * 1.001)


def test_l4_adam_divides_the_direction_and_not_the_gradient():
    w = parameter(*START)
    optimizer = L4([w], form="adam")
    # Step 1: L = (4 + 4) / 2 = 4, grad = (2, -4); corrected averages are the gradient and its square.
    v = [2 / (2 + 1e-4), -4 / (4 + 1e-4)]
    eta = 0.15 * (4 - 0.9 * 3) / (2 * v[0] - 4 * v[1])
    advance(optimizer, w)
    one = [2 - eta * v[0], -1 - eta * v[1]]
    assert lr(optimizer) == pytest.approx(eta, rel=1e-9)
    assert w.tolist() == pytest.approx(one, rel=1e-9)
    # Step 2
    loss, g = (one[0] ** 2 + 4 * one[1] ** 2) / 2, [one[0], 4 * one[1]]
    m = [(0.9 * 0.1 * old + 0.1 * new) / (1 - 0.9**2) for old, new in zip((2, -4), g, strict=True)]
    s = [(0.999 * 0.001 * old**2 + 0.001 * new**2) / (1 - 0.999**2) for old, new in zip((2, -4), g, strict=True)]
    v = [m[i] / (math.sqrt(s[i]) + 1e-4) for i in (0, 1)]
    eta = 0.15 * (loss - 0.9 * min(3 * 1.001, loss)) / (m[0] * v[0] + m[1] * v[1])
    advance(optimizer, w)
    assert lr(optimizer) == pytest.approx(eta, rel=1e-9)
    assert w.tolist() == pytest.approx([one[i] - eta * v[i] for i in (0, 1)], rel=1e-9)


def test_l4_without_averages_is_a_part_of_polyaks_step():
    """With g = v = grad, gamma_0 = gamma = 0: eta = alpha L / |grad|^2."""
    w = parameter(*START)
    optimizer = L4([w], betas=(0.0, 0.999), target=0.0, fraction=0.5)
    for _ in range(3):
        a, b = w.tolist()
        advance(optimizer, w)
        assert lr(optimizer) == pytest.approx(0.5 * (a**2 + 4 * b**2) / 2 / (a**2 + 16 * b**2))


def test_l4_minds_the_decay_of_the_weights_in_loss_and_gradient():
    plain, decayed = parameter(*START), parameter(*START)
    optimizer, other = L4([plain]), L4([decayed], weight_decay=0.3)
    for _ in range(4):
        advance(optimizer, plain, loss=lambda w: quadratic(w) + 0.15 * (w**2).sum())
        advance(other, decayed)
    assert decayed.tolist() == pytest.approx(plain.tolist(), rel=1e-12)


def test_l4_takes_the_loss_as_a_tensor_or_a_number():
    weights = [parameter(*START) for _ in range(2)]
    tensor, number = (L4([w]) for w in weights)
    for _ in range(3):
        tensor.step(backward(weights[0]))
        number.step(backward(weights[1]).item())
    assert torch.equal(weights[0], weights[1])


# HD against its paper's SGD-HD, SGDN-HD and Adam-HD


def test_sgd_hd_takes_the_steps_of_its_paper():
    w = parameter(*START)
    optimizer = HDSGD([w], lr=0.05, hyper_lr=0.01)
    # alpha_1 = alpha_0, as there is no gradient before.
    g0, alpha = (2.0, -4.0), 0.05
    one = [2 - alpha * 2, -1 + alpha * 4]
    advance(optimizer, w)
    assert lr(optimizer) == 0.05
    assert w.tolist() == pytest.approx(one)
    # alpha_2 = alpha_1 + beta g_2 . g_1
    g1 = (one[0], 4 * one[1])
    alpha += 0.01 * (g1[0] * g0[0] + g1[1] * g0[1])
    two = [one[0] - alpha * g1[0], one[1] - alpha * g1[1]]
    advance(optimizer, w)
    assert lr(optimizer) == pytest.approx(alpha)
    assert optimizer.last_hypergradient == pytest.approx(-(g1[0] * g0[0] + g1[1] * g0[1]))
    assert w.tolist() == pytest.approx(two)
    g2 = (two[0], 4 * two[1])
    alpha += 0.01 * (g2[0] * g1[0] + g2[1] * g1[1])
    advance(optimizer, w)
    assert lr(optimizer) == pytest.approx(alpha)
    assert w.tolist() == pytest.approx([two[0] - alpha * g2[0], two[1] - alpha * g2[1]])


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_hd_with_momentum_takes_the_derivative_of_the_whole_update(nesterov):
    """u = -alpha v (heavy ball) or -alpha (g + mu v) (SGDN-HD), with v = mu v + g."""
    w = parameter(2.0)  # f = w^2 / 2
    optimizer = HDSGD([w], lr=0.1, hyper_lr=0.02, momentum=0.5, nesterov=nesterov)
    v1 = 2.0
    d1 = 2.0 + 0.5 * v1 if nesterov else v1
    w1 = 2.0 - 0.1 * d1
    alpha2 = 0.1 + 0.02 * w1 * d1
    v2 = 0.5 * v1 + w1
    d2 = w1 + 0.5 * v2 if nesterov else v2
    w2 = w1 - alpha2 * d2
    alpha3 = alpha2 + 0.02 * w2 * d2
    v3 = 0.5 * v2 + w2
    d3 = w2 + 0.5 * v3 if nesterov else v3
    for alpha, value in ((0.1, w1), (alpha2, w2), (alpha3, w2 - alpha3 * d3)):
        advance(optimizer, w, loss=lambda w: quadratic(w, (1.0,)))
        assert lr(optimizer) == pytest.approx(alpha, rel=1e-12)
        assert w.item() == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("beta1", [0.9, 0.0])
def test_adam_hd_takes_the_steps_of_its_paper(beta1):
    w = parameter(2.0)  # f = w^2 / 2
    optimizer = HDAdam([w], lr=0.1, hyper_lr=0.03, betas=(beta1, 0.99), eps=1e-3)
    # t = 1: the corrected averages are g and g^2.
    d1 = 2 / (2 + 1e-3)
    w1 = 2 - 0.1 * d1
    # t = 2
    alpha2 = 0.1 + 0.03 * w1 * d1
    m2 = beta1 * (1 - beta1) * 2 + (1 - beta1) * w1
    s2 = 0.99 * 0.01 * 4 + 0.01 * w1**2
    d2 = m2 / (1 - beta1**2) / (math.sqrt(s2 / (1 - 0.99**2)) + 1e-3)
    w2 = w1 - alpha2 * d2
    # t = 3
    alpha3 = alpha2 + 0.03 * w2 * d2
    m3, s3 = beta1 * m2 + (1 - beta1) * w2, 0.99 * s2 + 0.01 * w2**2
    d3 = m3 / (1 - beta1**3) / (math.sqrt(s3 / (1 - 0.99**3)) + 1e-3)
    for alpha, value in ((0.1, w1), (alpha2, w2), (alpha3, w2 - alpha3 * d3)):
        advance(optimizer, w, loss=lambda w: quadratic(w, (1.0,)))
        assert lr(optimizer) == pytest.approx(alpha, rel=1e-12)
        assert w.item() == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("method", "plain"),
    [
        (
            lambda p: HDSGD(p, lr=0.05, hyper_lr=0.0, weight_decay=0.1),
            lambda p: torch.optim.SGD(p, 0.05, weight_decay=0.1),
        ),
        (
            lambda p: HDSGD(p, lr=0.05, hyper_lr=0.0, momentum=0.9, nesterov=True),
            lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
        ),
        (
            lambda p: HDAdam(p, lr=0.05, hyper_lr=0.0, weight_decay=0.1),
            lambda p: torch.optim.Adam(p, 0.05, weight_decay=0.1),
        ),
        (
            lambda p: RTHO(p, lr=0.05, hyper_lr=0.0, momentum=0.9, weight_decay=0.1),
            lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.1),
        ),
    ],
)
def test_without_a_hyper_lr_a_method_is_torchs_optimizer(method, plain):
    w, other = parameter(*START), parameter(*START)
    optimizer, reference = method([w]), plain([other])
    for _ in range(5):
        advance(optimizer, w)
        advance(reference, other)
    assert w.tolist() == pytest.approx(other.tolist(), rel=1e-12)
    assert lr(optimizer) == 0.05


def test_hd_minds_the_decay_of_the_weights():
    plain, decayed = parameter(*START), parameter(*START)
    optimizer, other = (HDSGD([w], lr=0.05, hyper_lr=0.01, weight_decay=wd) for w, wd in ((plain, 0), (decayed, 0.3)))
    for _ in range(4):
        advance(optimizer, plain, loss=lambda w: quadratic(w) + 0.15 * (w**2).sum())
        advance(other, decayed)
    assert decayed.tolist() == pytest.approx(plain.tolist(), rel=1e-12)
    assert lr(other) == pytest.approx(lr(optimizer))
