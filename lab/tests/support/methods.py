"""Every method of mlrsnet_lab.baselines by name, and small problems for them."""

import copy

import pytest
import torch
from torch import nn

from mlrsnet_lab.baselines import HDSGD, L4, RTHO, HDAdam

CURVATURES = (1.0, 4.0)  # of the quadratic f(w) = (w_1^2 + 4 w_2^2) / 2, whose gradient is (w_1, 4 w_2)
START = (2.0, -1.0)


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
    """One step of any method. RTHO validates on another quadratic."""
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


class Small:
    """A network in float64 on fixed batches, which can be trained repeatedly from the same weights."""

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
        optimizer = RTHO(self.model.parameters(), lr=alpha, hyper_lr=0.0, **options)
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
    """Uses two weights only as their sum, so both gradients are one tensor."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.randn(4, 5)) for _ in range(2))

    def forward(self, x):
        return x @ (self.a + self.b)
