"""L4, HD and RTHO: their papers' equations worked out by hand, and what a user of an optimizer expects of one."""

import copy
import io
import math

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from mlrsnet.baselines import HDSGD, L4, RTHO, HDAdam
from mlrsnet.baselines.base import dot
from mlrsnet.baselines.rtho import clipped

CURVATURES = (1.0, 4.0)  # of the quadratic f(w) = (w_1^2 + 4 w_2^2) / 2, whose gradient is (w_1, 4 w_2)
START = (2.0, -1.0)
NEEDS_GPU = (pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))


def parameter(*values):
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


def quadratic(w, curvatures=CURVATURES):
    return (torch.tensor(curvatures, dtype=torch.float64) * w**2).sum() / 2


def backward(*parameters, loss=quadratic):
    for w in parameters:
        w.grad = None
    value = sum(loss(w) for w in parameters)
    value.backward()
    return value


def advance(optimizer, *parameters, loss=quadratic):
    """One step of whichever method; RTHO validates on another quadratic."""
    if isinstance(optimizer, RTHO):
        train, val = (lambda: sum(loss(w) for w in parameters)), (lambda: sum(validation(w) for w in parameters))
        return optimizer.step(train, val)
    value = backward(*parameters, loss=loss)
    return optimizer.step(value) if isinstance(optimizer, L4) else optimizer.step()


def validation(w):
    return ((w - 0.5) ** 2).sum()


def lr(optimizer):
    return optimizer.param_groups[0]["lr"]


METHODS = {
    "l4-momentum": lambda params, **options: L4(params, **options),
    "l4-adam": lambda params, **options: L4(params, form="adam", **options),
    "hd-sgd": lambda params, **options: HDSGD(params, lr=0.05, hyper_lr=0.01, **options),
    "hd-heavy-ball": lambda params, **options: HDSGD(params, lr=0.05, hyper_lr=0.01, momentum=0.5, **options),
    "hd-nesterov": lambda params, **options: HDSGD(
        params, lr=0.05, hyper_lr=0.01, momentum=0.5, nesterov=True, **options
    ),
    "hd-adam": lambda params, **options: HDAdam(params, lr=0.05, hyper_lr=0.001, **options),
    "rtho-sgd": lambda params, **options: RTHO(params, lr=0.05, hyper_lr=0.01, **options),
    "rtho-momentum": lambda params, **options: RTHO(params, lr=0.05, hyper_lr=0.01, momentum=0.5, **options),
}


@pytest.fixture(params=METHODS)
def make(request):
    return METHODS[request.param]


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


def test_l4_takes_the_loss_as_a_tensor_a_number_or_a_closure():
    weights = [parameter(*START) for _ in range(3)]
    tensor, number, closure = (L4([w]) for w in weights)
    for _ in range(3):
        tensor.step(backward(weights[0]))
        number.step(backward(weights[1]).item())
        assert closure.step(lambda: backward(weights[2])).requires_grad
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])


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


# RTHO against its equations and against finite differences


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


class Small:
    """A network on fixed batches in float64, to be trained again and again from the same weights."""

    def __init__(self, kind="mlp"):
        generator = torch.Generator().manual_seed(3)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.model = {
                "mlp": lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)),
                "batch-norm": lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2)),
                "lstm": lambda: Recurrent(),
                "sum": lambda: nn.Sequential(Summed(), nn.Tanh(), nn.Linear(5, 2)),
            }[kind]().double()
        self.x = torch.randn(8, 6, 4, generator=generator, dtype=torch.float64)
        self.y = torch.randint(2, (8, 6), generator=generator)
        self.start = copy.deepcopy(self.model.state_dict())

    def loss(self, batch):
        return nn.functional.cross_entropy(self.model(self.x[batch]), self.y[batch])

    def train(self, alpha, steps=6, **options):
        self.model.load_state_dict(self.start)
        groups = [{"params": [p]} for p in self.model.parameters()]
        groups[0]["lr"] = 2 * alpha
        optimizer = RTHO(groups, lr=alpha, hyper_lr=0.0, **options)
        for step in range(steps):
            optimizer.step(lambda batch=step: self.loss(batch), lambda: self.loss(7))
        return optimizer


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(2, 3), nn.Linear(3, 2)

    def forward(self, x):
        output, _ = self.lstm(x.reshape(len(x), 2, 2).transpose(0, 1))
        return self.out(output[-1])


class Summed(nn.Module):
    """Two weights that enter as their sum: the gradients of both are one tensor."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.randn(4, 5)) for _ in range(2))

    def forward(self, x):
        return x @ (self.a + self.b)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.8}, {"momentum": 0.5, "weight_decay": 0.1, "clip_norm": 0.3}])
@pytest.mark.parametrize("kind", ["mlp", "batch-norm", "lstm", "sum"])
def test_rthos_hypergradient_is_the_derivative_of_the_whole_training(kind, options):
    """The first group has twice the others' LR, so alpha, the LR of the first, moves the others by half as much."""
    small, step = Small(kind), 1e-5

    def after(alpha):
        small.train(alpha, **options)
        return small.loss(7).item()

    hypergradient = small.train(0.2, **options).hypergradient(lambda: small.loss(7))
    difference = (after(0.2 + step) - after(0.2 - step)) / (2 * step)
    assert 2 * hypergradient == pytest.approx(difference, rel=1e-6)
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
    plain.param_groups[0]["params"], first = plain.param_groups[0]["params"][1:], plain.param_groups[0]["params"][0]
    plain.add_param_group({"params": [first], "lr": 0.2})
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


# What is expected of every optimizer


def test_a_method_learns(make):
    small = Small()
    optimizer, before = make(small.model.parameters()), small.loss(0).item()
    for _ in range(80):
        if isinstance(optimizer, RTHO):
            optimizer.step(lambda: small.loss(0), lambda: small.loss(0))
        else:
            loss = small.loss(0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step(loss) if isinstance(optimizer, L4) else optimizer.step()
    assert small.loss(0) < 0.8 * before


def test_two_groups_that_are_alike_are_as_one(make):
    """Inner products go over all groups, and there is one LR."""
    together, apart = [parameter(2.0), parameter(-1.0)], [parameter(2.0), parameter(-1.0)]
    one, two = make(together), make([{"params": [w]} for w in apart])
    for _ in range(4):
        advance(one, *together, loss=lambda w: quadratic(w, (3.0,)))
        advance(two, *apart, loss=lambda w: quadratic(w, (3.0,)))
    assert [w.item() for w in apart] == pytest.approx([w.item() for w in together], rel=1e-12)
    assert [group["lr"] for group in two.param_groups] == pytest.approx([lr(one)] * 2, rel=1e-12)


@pytest.mark.parametrize("kind", [HDSGD, RTHO])
def test_groups_keep_the_ratios_of_the_lrs_they_began_with(kind):
    """A group with 3 times the LR is as a weight that is stretched by sqrt(3): the same derivative with respect to alpha."""
    w, stretched = [parameter(2.0), parameter(-1.0)], [parameter(2.0), parameter(-1.0 / math.sqrt(3))]
    optimizer = kind([{"params": [w[0]]}, {"params": [w[1]], "lr": 0.06}], lr=0.02, hyper_lr=0.002)
    other = kind(stretched, lr=0.02, hyper_lr=0.002)
    for _ in range(4):
        if kind is RTHO:
            optimizer.step(lambda: quadratic(w[0]) + quadratic(w[1]), lambda: validation(w[0]) + validation(w[1]))
            other.step(
                lambda: quadratic(stretched[0]) + quadratic(math.sqrt(3) * stretched[1]),
                lambda: validation(stretched[0]) + validation(math.sqrt(3) * stretched[1]),
            )
        else:
            backward(*w)
            optimizer.step()
            other.zero_grad()
            (quadratic(stretched[0]) + quadratic(math.sqrt(3) * stretched[1])).backward()
            other.step()
    first, second = (group["lr"] for group in optimizer.param_groups)
    assert first == pytest.approx(lr(other), rel=1e-9)
    assert second == pytest.approx(3 * first, rel=1e-12)
    assert lr(other) != 0.02
    assert w[1].item() == pytest.approx(math.sqrt(3) * stretched[1].item(), rel=1e-9)


def test_a_group_that_comes_later_moves_with_the_others(make):
    early, late = parameter(*START), parameter(1.0, 1.0)
    optimizer = make([early])
    for _ in range(2):
        advance(optimizer, early)
    optimizer.param_groups[0]["hyper_lr" if "hyper_lr" in optimizer.defaults else "fraction"] = 0.003
    optimizer.add_param_group({"params": [late], "weight_decay": 0.1})
    for name in optimizer.shared:
        assert optimizer.param_groups[1][name] == optimizer.param_groups[0][name]
    for _ in range(3):
        advance(optimizer, early, late)
    assert optimizer.param_groups[1]["weight_decay"] == 0.1
    assert optimizer.param_groups[1]["lr"] == pytest.approx(lr(optimizer))
    assert not torch.equal(late, torch.ones(2))


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_method_goes_on_bit_for_bit_from_its_state(make, steps):
    w = parameter(*START)
    optimizer = make([w])
    for _ in range(steps):
        advance(optimizer, w)
    content = io.BytesIO()
    torch.save(optimizer.state_dict(), content)
    content.seek(0)
    again = nn.Parameter(w.detach().clone())
    resumed = make([again])
    resumed.load_state_dict(torch.load(content, weights_only=True))
    copied = copy.deepcopy(optimizer)
    (twin,) = copied.param_groups[0]["params"]
    for _ in range(3):
        advance(optimizer, w)
        advance(resumed, again)
        advance(copied, twin)
        assert lr(resumed) == lr(optimizer) == lr(copied)
        assert torch.equal(again, w)
        assert torch.equal(twin, w)


def test_a_state_of_another_optimizer_is_refused(make):
    w = parameter(*START)
    with pytest.raises(ValueError, match=r"state_dict must be that of a \w+, got one whose groups have no"):
        make([w]).load_state_dict(torch.optim.Adadelta([w]).state_dict())


def test_an_lr_set_by_hand_is_the_one_that_is_adapted():
    for kind in (HDSGD, RTHO):
        w = parameter(*START)
        optimizer = kind([w], lr=0.05, hyper_lr=0.0)
        advance(optimizer, w)
        optimizer.param_groups[0]["lr"] = 0.01
        before = w.tolist()
        advance(optimizer, w)
        assert w.tolist() == pytest.approx([before[0] - 0.01 * before[0], before[1] - 0.01 * 4 * before[1]])


def test_parameters_without_a_gradient_are_left_alone(make):
    w, unused, frozen = parameter(*START), parameter(5.0), parameter(7.0)
    frozen.requires_grad_(False)
    optimizer = make([w, unused, frozen])
    for _ in range(3):
        advance(optimizer, w)
    assert (unused.item(), frozen.item()) == (5.0, 7.0)
    assert w.tolist() != list(START)


@pytest.mark.parametrize("kind", [name for name in METHODS if not name.startswith("rtho")])
def test_gradients_that_are_zeroed_in_place_make_no_difference(kind):
    """The last direction is kept, not the tensor that the next gradient is written into."""
    w, other = parameter(*START), parameter(*START)
    optimizer, reference = METHODS[kind]([w]), METHODS[kind]([other])
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        loss = quadratic(w)
        loss.backward()
        optimizer.step(*[loss] if isinstance(optimizer, L4) else [])
        advance(reference, other)
    assert torch.equal(w, other)
    assert lr(optimizer) == lr(reference)


def test_hd_forgets_the_move_of_a_parameter_that_did_not_move():
    always, sometimes = parameter(2.0), parameter(1.0)
    optimizer = HDSGD([always, sometimes], lr=0.05, hyper_lr=0.01)
    gradients = []
    for both in (True, False, True):
        optimizer.zero_grad()
        backward(*((always, sometimes) if both else (always,)), loss=lambda w: (w**2).sum() / 2)
        gradients.append(always.grad.item())
        optimizer.step()
    assert optimizer.param_groups[0]["hypergradient"] == pytest.approx(-gradients[1] * gradients[2])


class Operations(TorchDispatchMode):
    """Counts what is dispatched: on a GPU about as many launches, one or a few for a whole list of tensors."""

    def __init__(self):
        super().__init__()
        self.count, self.reads, self.counts = 0, 0, True

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += self.counts and "detach" not in str(function)  # which launches nothing
        self.reads += self.counts and "_local_scalar_dense" in str(function)
        return function(*args, **(kwargs or {}))

    def without(self, call):
        """The same function, whose operations are not counted."""

        def uncounted(*args, **kwargs):
            self.counts = False
            try:
                return call(*args, **kwargs)
            finally:
                self.counts = True

        return uncounted


def operations(method, num_parameters):
    parameters = [parameter(*START) for _ in range(num_parameters)]
    optimizer = method(parameters, weight_decay=0.1)
    advance(optimizer, *parameters)
    loss = backward(*parameters).item()
    with Operations() as found:
        optimizer.step(*[loss] if isinstance(optimizer, L4) else [])
    return found.count


def operations_of_rtho(method, num_parameters, monkeypatch, **options):
    """Those of a step that has all of its parts, less those of the losses' own passes, forward and backward."""
    parameters = [parameter(*START) for _ in range(num_parameters)]
    optimizer, found = method(parameters, weight_decay=0.1, **options), Operations()
    train, val = (found.without(lambda f=f: sum(f(w) for w in parameters)) for f in (quadratic, validation))
    optimizer.step(train, val)
    with monkeypatch.context() as patch, found:
        patch.setattr(torch.autograd, "grad", found.without(torch.autograd.grad))
        optimizer.step(train, val)
    return found


@pytest.mark.parametrize("kind", [name for name in METHODS if not name.startswith("rtho")])
def test_a_step_with_many_parameters_launches_little_more_than_one_with_few(kind):
    """Only the inner products have an operation for each parameter: HD's one, L4's three (loss, gradient, g . v)."""
    few, many = (operations(METHODS[kind], number) for number in (10, 60))
    assert (many - few) / 50 <= (3 if kind.startswith("l4") else 1)
    assert few <= 60


@pytest.mark.parametrize("clip_norm", [None, 0.1])
@pytest.mark.parametrize("kind", [name for name in METHODS if name.startswith("rtho")])
def test_rtho_with_many_parameters_launches_little_more_and_waits_no_more_often(kind, clip_norm, monkeypatch):
    """For each parameter two inner products; to clip two more."""
    few, many = (operations_of_rtho(METHODS[kind], count, monkeypatch, clip_norm=clip_norm) for count in (10, 60))
    assert (many.count - few.count) / 50 <= (4 if clip_norm else 2)
    assert few.count <= 80
    assert few.reads == many.reads
    assert many.reads <= (5 if clip_norm else 3)


@pytest.mark.parametrize(
    "placed",
    [
        pytest.param([{"dtype": dtype} for dtype in (torch.float32, torch.bfloat16, torch.float64)], id="dtypes"),
        pytest.param([{"device": "cpu"}, {"device": "cuda"}], id="devices", marks=NEEDS_GPU),
    ],
)
def test_parameters_of_a_group_need_not_be_alike(make, placed):
    together, apart = ([nn.Parameter(torch.tensor(START, **each)) for each in placed] for _ in range(2))
    one, two = make(together, weight_decay=0.1), make([{"params": [w]} for w in apart], weight_decay=0.1)
    for _ in range(4):
        advance(one, *together, loss=validation)
        advance(two, *apart, loss=validation)
    for w, other in zip(together, apart, strict=True):
        assert (w.dtype, w.device) == (other.dtype, other.device)
        assert w.tolist() != list(START)
        assert w.tolist() == pytest.approx(other.tolist(), rel=1e-6)
    assert lr(one) == pytest.approx(lr(two), rel=1e-6)


def test_averages_are_corrected_for_the_steps_that_each_parameter_took():
    ours, torchs = ([parameter(*START), parameter(1.0, 3.0)] for _ in range(2))
    optimizer, reference = HDAdam(ours, lr=0.05, hyper_lr=0.0), torch.optim.Adam(torchs, lr=0.05)
    for both in (False, True, False, True):
        for weights, method in ((ours, optimizer), (torchs, reference)):
            method.zero_grad()
            backward(*weights if both else weights[:1])
            method.step()
    assert torch.allclose(torch.stack(ours), torch.stack(torchs), rtol=1e-12, atol=0)


def test_l4_without_gradients_says_so_and_changes_nothing():
    w = parameter(*START)
    optimizer = L4([w])
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(RuntimeError, match=r"no parameter has a gradient: call loss\.backward\(\)"):
        optimizer.step(quadratic(w))
    assert optimizer.state_dict() == before


def test_l4_takes_a_closure_by_torchs_name():
    found = []
    for name in ("loss", "closure"):
        w = parameter(*START)
        L4([w]).step(**{name: lambda w=w: backward(w)})
        found.append(w.detach())
    assert found[0].equal(found[1])
    with pytest.raises(TypeError, match="from one loss"):
        L4([w]).step(1.0, closure=lambda: 1.0)


def test_products_of_half_precision_are_added_up_in_full():
    ones = torch.full((4096,), 1.001, dtype=torch.bfloat16)
    assert dot([(ones, ones)]) == pytest.approx(float((ones.double() ** 2).sum()), rel=1e-6)


def test_hd_evaluates_a_closure():
    w, other = parameter(*START), parameter(*START)
    optimizer, reference = (HDSGD([p], lr=0.05, hyper_lr=0.01, momentum=0.5) for p in (w, other))
    for _ in range(3):
        assert optimizer.step(lambda: backward(w)).requires_grad
        advance(reference, other)
    assert torch.equal(w, other)


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
    with pytest.warns(UserWarning, match="was not finite: .* has left out this step") as told:
        for _ in range(2):
            advance(optimizer, w, loss=lambda w: bad * quadratic(w))
    assert len(told) == 1
    assert told[0].filename == __file__
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
    with pytest.warns(UserWarning, match="RTHO has kept the LR and begun that derivative anew"):
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
    "lr of l4": (lambda w: L4([{"params": [w], "lr": 0.1}]), "lr must not be given, got 0.1: L4 computes it"),
    "lr of a group": (lambda w: HDSGD([{"params": [w], "lr": -2.0}]), "lr must be >= 0, got -2.0"),
    "hyper_lr of a group": (
        lambda w: HDSGD([{"params": [w], "hyper_lr": 0.5}]),
        "hyper_lr must be the same in all parameter groups, got 0.5 beside 0.001: give it to the optimizer",
    ),
    "integers": (lambda w: HDSGD([torch.ones(2, dtype=torch.int64)]), "real floating-point tensors, got torch.int64"),
    "complex": (lambda w: RTHO([nn.Parameter(torch.ones(1, dtype=torch.complex64))]), "got torch.complex64"),
    "no loss": (lambda w: L4([w]).step(), "L4 computes the step from one loss: call step(loss)"),
    "no number": (lambda w: L4([w]).step("2.3"), "the loss must be a tensor or a number, got '2.3'"),
    "many losses": (lambda w: L4([w]).step(torch.ones(3)), "the loss must be one number, got a tensor of shape (3,)"),
    "negative loss": (lambda w: L4([w]).step(-1.0), "the loss must be >= 0 for L4, got -1.0"),
    "closure without a loss": (
        lambda w: HDSGD([w]).step(lambda: None),
        "the closure's loss must be a tensor or a number",
    ),
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
