"""Schedules, optimizers and a tiny task for the contract tests."""

from collections.abc import Callable

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from mlrsnet.card import Card
from mlrsnet.default import Default
from mlrsnet.law import Law
from mlrsnet.nets import LSTMNet, MLPNet, TrendNet
from mlrsnet.ranges import Fixed, PhaseGamma
from mlrsnet.schedule import Schedule

KNOWS_HORIZON = {"inputs": ("loss", "progress"), "loss_scale": "log_classes", "sharpness": 4.0, "anneal": "linear"}

NETWORKS: dict[str, Callable[[], Schedule]] = {
    "paper": lambda: Schedule([LSTMNet() for _ in range(3)]),
    "official": lambda: Schedule([LSTMNet(layout="official-test") for _ in range(3)], Card(gamma=PhaseGamma())),
    "official-train": lambda: Schedule([LSTMNet(12, layout="official-train") for _ in range(2)]),
    "two-layers": lambda: Schedule([LSTMNet(8, 2) for _ in range(2)]),
    "mlp": lambda: Schedule([MLPNet() for _ in range(3)]),
    "horizon": lambda: Schedule(LSTMNet(**KNOWS_HORIZON), Card(gamma=Fixed(1.0))),
    "first-loss": lambda: Schedule(MLPNet(10, loss_scale="initial"), Card(gamma=Fixed(0.5))),
    "trend": lambda: Schedule(TrendNet(8, 2, sharpness=2.0), Card(gamma=Fixed(1.0))),
    "text": lambda: Schedule(LSTMNet(20)).for_text(),
}

SCHEDULES: dict[str, Callable[[], Law]] = {"default": Default, **NETWORKS}

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": lambda p, lr=0.1: SGD(p, lr=lr, weight_decay=5e-4),
    "heavy-ball": lambda p, lr=0.1: SGD(p, lr=lr, momentum=0.9),
    "nesterov": lambda p, lr=0.1: SGD(p, lr=lr, momentum=0.9, nesterov=True),
    "adam": lambda p, lr=0.1: Adam(p, lr=lr),
    "adamw": lambda p, lr=0.1: AdamW(p, lr=lr),
    "rmsprop": lambda p, lr=0.1: RMSprop(p, lr=lr, momentum=0.5),
}


def constant_nets(answers: list[float], **options: object) -> list[MLPNet]:
    """One network for each answer, which it gives whatever the loss is."""
    nets = [MLPNet(2, **options).double() for _ in answers]
    for net, answer in zip(nets, answers, strict=True):
        for parameter in net.parameters():
            parameter.data.zero_()
        net.out.bias.data.fill_(torch.tensor(answer, dtype=torch.float64).logit())
    return nets


def line() -> Schedule:
    """A schedule that reads only the progress: 0.5 (1 - u)."""
    return Schedule(constant_nets([0.5], anneal="linear"), Card(gamma=Fixed(1.0)))


def stairs(*answers: float) -> Schedule:
    """A schedule with one height for each phase."""
    return Schedule(constant_nets(list(answers)), Card(gamma=Fixed(1.0)))


class Task:
    """A small classifier on random data. The same seed gives the same batches."""

    def __init__(self, seed: int = 0, classes: int = 5) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, classes))
        for parameter in self.model.parameters():
            parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)
        self.inputs = torch.randn(64, 16, 6, generator=generator)
        self.labels = torch.randint(classes, (64, 16), generator=generator)

    def loss(self, step: int, part: slice = slice(None)) -> torch.Tensor:
        output = self.model(self.inputs[step % 64, part])
        return nn.functional.cross_entropy(output, self.labels[step % 64, part])

    def backward(self, step: int, optimizer: Optimizer) -> torch.Tensor:
        loss = self.loss(step)
        optimizer.zero_grad()
        loss.backward()
        return loss

    def weights(self) -> torch.Tensor:
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.model.parameters()])
