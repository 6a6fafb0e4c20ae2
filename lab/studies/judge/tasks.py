"""The trainings, one of each kind. Five of them see their examples fewer than three times."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from lab.studies.judge import data, nets
from lab.studies.judge.task import Plan, Task, task
from lab.studies.law.nets import gpt, with_adapters

Found = tuple[Tensor, Tensor | None]

POINTS, MASKED, MIXUP = 64, 0.15, 0.8
"""Points of a digit; the share of characters that is hidden; of the Beta distribution."""


def classes(model: nn.Module, x: Tensor, y: Tensor) -> Found:
    """Cross-entropy, and which answers are wrong."""
    logits = model(x)
    return functional.cross_entropy(logits, y), logits.argmax(1) != y


def next_words(model: nn.Module, pieces: Tensor) -> Found:
    """Cross-entropy of each next word."""
    return functional.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten()), None


def _adapters(folder: Path) -> Task:
    weights = {name: torch.from_numpy(value).float() for name, value in data.arrays(folder, "base").items()}

    def build() -> nn.Module:
        model = data.base_model()
        model.load_state_dict(weights)
        model.requires_grad_(False)
        for block in list(model.children())[1:-2]:
            with_adapters(block, 8)
        return model

    pieces = data.pieces(data.text(folder, "words", "shakespeare"), data.LENGTH + 1)
    plan = Plan("adamw", 1e-3, steps=500, batch=16, examples=5000, weight_decay=0.01, clip=1.0)
    return task(plan, build, next_words, [pieces], 400, 600)


def _vae(folder: Path) -> Task:
    def cost(model: nn.Module, x: Tensor) -> Found:
        logits, price = model(x)
        missed = functional.binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(1)
        return (missed + price).mean(), None

    plan = Plan("adam", 1e-3, steps=800, batch=64, examples=3000)
    return task(plan, lambda: nets.ConvVAE(16, 16), cost, data.pictures(folder, "fashion")[:1], 500, 1500)


def _graph(folder: Path) -> Task:
    x, neighbours, y = data.graph(folder)

    def cost(model: nn.Module, nodes: Tensor) -> Found:
        logits = model(x, neighbours)[nodes]
        return functional.cross_entropy(logits, y[nodes]), logits.argmax(1) != y[nodes]

    plan = Plan("adam", 5e-3, steps=300, batch=200, examples=200, weight_decay=5e-4)
    return task(plan, lambda: nets.GAT(x.shape[1], 4, 8, 8, 0.6), cost, [torch.arange(len(x))], 400, 1500)


def _noise(folder: Path) -> Task:
    def cost(model: nn.Module, x: Tensor) -> Found:
        time, noise = torch.rand(len(x)), torch.randn_like(x)
        angle = (time * torch.pi / 2)[:, None, None, None]
        return (model(angle.cos() * (2 * x - 1) + angle.sin() * noise, time) - noise).square().mean(), None

    plan = Plan("adamw", 1e-3, steps=300, batch=16, examples=1800, weight_decay=0.01, clip=1.0)
    return task(plan, lambda: nets.UNet(3, 24), cost, data.pictures(folder, "cifar10")[:1], 300, 500)


def _mnist_cnn(folder: Path) -> Task:
    plan = Plan("sgdm", 0.01, steps=400, batch=32, examples=5000)
    x, y = data.pictures(folder, "mnist")
    return task(plan, lambda: nets.digits_cnn(16, 128), classes, [(x - 0.1307) / 0.3081, y], 1500, 2500)


def _gpt(width: int, depth: int, length: int, plan: Plan) -> Callable[[Path], Task]:
    def make(folder: Path) -> Task:
        pieces = data.pieces(data.text(folder, "penn"), length + 1)
        return task(
            plan, lambda: gpt(data.WORDS, length, width, depth, "gpt2"), next_words, [pieces], 16_000 // length, 500
        )

    return make


def _masked(folder: Path) -> Task:
    length = 16

    def cost(model: nn.Module, pieces: Tensor) -> Found:
        hidden = torch.rand(pieces.shape) < MASKED
        logits, answers = model(pieces.masked_fill(hidden, data.SYMBOLS))[hidden], pieces[hidden]
        return functional.cross_entropy(logits, answers), logits.argmax(1) != answers

    pieces = data.pieces(data.text(folder, "wikipedia"), length)
    plan = Plan("adamw", 1e-3, steps=700, batch=64, examples=32_000, weight_decay=0.01, clip=1.0)
    return task(plan, lambda: nets.masked(data.SYMBOLS, length, 64, 2), cost, [pieces], 1000, 3000)


def _doubled(folder: Path) -> Task:
    def cost(model: nn.Module, x: Tensor) -> Found:
        return (model(functional.avg_pool2d(x, 2)) - x).square().mean(), None

    plan = Plan("adam", 1e-3, steps=600, batch=32, examples=1500)
    return task(plan, lambda: nets.doubler(3, 64), cost, data.pictures(folder, "cifar10")[:1], 400, 700)


def _coordinates(folder: Path) -> Task:
    """Trained on every second pixel of every second row; chosen by a third of the others, judged by the rest."""
    picture = torch.from_numpy(data.arrays(folder, "china")["x"]).float() / 255
    row, column = (part.flatten() for part in torch.meshgrid(*[torch.arange(data.SIDE)] * 2, indexing="ij"))
    order = torch.randperm(len(row), generator=torch.Generator().manual_seed(0))
    order = order[(row[order] % 2 + column[order] % 2).gt(0).argsort(stable=True)]
    x, y = torch.stack([row, column], dim=1)[order] / data.SIDE, picture[row, column][order]

    def cost(model: nn.Module, x: Tensor, y: Tensor) -> Found:
        return (model(x) - y).square().mean(), None

    quarter = data.SIDE**2 // 4
    plan = Plan("adam", 1e-3, steps=1000, batch=128, examples=quarter)
    return task(plan, lambda: nets.Fourier(64, 6.0, 384, 4, 3), cost, [x, y], quarter, 2 * quarter)


def _points(folder: Path) -> Task:
    x, y = data.pictures(folder, "mnist")
    x, y = x[:4500], y[:4500]
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial((x > 0.5).float().flatten(1), POINTS, replacement=True, generator=generator)
    places = torch.stack([drawn // 28, drawn % 28], dim=2) + torch.rand(*drawn.shape, 2, generator=generator) - 0.5
    plan = Plan("adam", 1e-3, steps=500, batch=32, examples=2000)
    return task(plan, lambda: nets.PointNet(64, 10), classes, [places / 14 - 1, y], 1000, 1500)


def _rows(folder: Path) -> Task:
    x, y = data.pictures(folder, "fashion")
    plan = Plan("sgdm", 0.01, steps=1000, batch=32, examples=3000, clip=1.0)
    return task(plan, lambda: nets.RowReader(28, 96, 10), classes, [x[:, 0], y], 500, 1500)


def _convnext(folder: Path) -> Task:
    def cost(model: nn.Module, x: Tensor, y: Tensor) -> Found:
        if not model.training:
            return classes(model, x, y)
        share, other = torch.distributions.Beta(MIXUP, MIXUP).sample(), torch.randperm(len(x))
        logits = model(share * x + (1 - share) * x[other])
        first, second = (functional.cross_entropy(logits, answer) for answer in (y, y[other]))
        return share * first + (1 - share) * second, None

    x, y = data.pictures(folder, "cifar100")
    plan = Plan("adamw", 1e-3, steps=600, batch=32, examples=3000, weight_decay=0.05)
    return task(plan, lambda: nets.convnext(3, data.CLASSES, 32, 2), cost, [2 * x - 1, y], 500, 1000)


TASKS: dict[str, Callable[[Path], Task]] = {
    "adapters": _adapters,
    "VAE": _vae,
    "graph": _graph,
    "noise": _noise,
    "MNIST CNN": _mnist_cnn,
    "GPT small": _gpt(64, 2, 32, Plan("adamw", 1e-3, steps=400, batch=16, examples=4800, weight_decay=0.1, clip=1.0)),
    "GPT larger": _gpt(192, 4, 12, Plan("adamw", 1e-3, steps=300, batch=16, examples=1200, weight_decay=0.1, clip=1.0)),
    "masked words": _masked,
    "pictures x 2": _doubled,
    "coordinates": _coordinates,
    "points": _points,
    "rows": _rows,
    "ConvNeXt": _convnext,
}
"""By the names of the list, without commas."""


@cache
def load(folder: Path, name: str) -> Task:
    """A task, made once in a process."""
    return TASKS[name](folder)
