"""What is trained: families of networks and data, each drawn from the number of a row."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lab.studies.law import data, nets

Judged = tuple[float, float]
"""The share of wrong answers (or the loss, where there is none to be wrong), and the loss."""

ANY = ("sgd", "momentum", "adam", "adamw")
ADAM = ("adam", "adamw", "adamw", "momentum")


class Draw:
    """Choices of one row.

    >>> Draw(3).pick((1, 2, 3)) == Draw(3).pick((1, 2, 3))
    True
    """

    def __init__(self, number: int) -> None:
        self.number, self._random = number, np.random.default_rng([20261119, number])

    def pick(self, values: Sequence[Any]) -> Any:
        """One of them."""
        return values[int(self._random.integers(len(values)))]

    def between(self, low: float, high: float) -> float:
        """A number, by its logarithm."""
        return math.exp(self._random.uniform(math.log(low), math.log(high)))

    def chance(self, share: float) -> bool:
        """Yes, so often."""
        return bool(self._random.uniform() < share)


@dataclass(frozen=True)
class Task:
    """Data and a network, before a training is planned.

    build: the network at the start. loss: of some of the examples. judge: on examples that are held out. examples: how many there
    are to train on, and how many of them are used. sequence: predictions for each. optimizers, batches, steps: to draw from.
    """

    build: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Tensor], Tensor]
    judge: Callable[[nn.Module], Judged]
    examples: int
    sequence: int = 1
    optimizers: Sequence[str] = ANY
    batches: Sequence[int] = (8, 16, 32, 64, 128, 256, 512)
    steps: tuple[int, int] = (100, 900)
    whole: bool = False


def classified(build: Callable[[], nn.Module], x: Tensor, y: Tensor, held: int = data.HELD_OUT, **options: Any) -> Task:
    """Classes; the last examples are held out."""
    x, y, test_x, test_y = x[:-held], y[:-held], x[-held:], y[-held:]

    def loss(model: nn.Module, index: Tensor) -> Tensor:
        return functional.cross_entropy(model(x[index]), y[index])

    def judge(model: nn.Module) -> Judged:
        logits = torch.cat([model(part) for part in test_x.split(500)])
        return float((logits.argmax(1) != test_y).float().mean()), float(functional.cross_entropy(logits, test_y))

    return Task(build, loss, judge, len(x), **options)


def written(build: Callable[[], nn.Module], text: Tensor, length: int, **options: Any) -> Task:
    """The next character, in pieces of a text whose end is held out."""
    pieces = text[: len(text) // (length + 1) * (length + 1)].view(-1, length + 1)
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(0))
    train, test = pieces[order[:-400]], pieces[order[-400:]]

    def cost(model: nn.Module, pieces: Tensor) -> Tensor:
        return functional.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())

    def judge(model: nn.Module) -> Judged:
        found = sum(float(cost(model, part)) for part in test.split(100)) / 4
        return found, found

    return Task(build, lambda model, index: cost(model, train[index]), judge, len(train), length, **options)


def measured(
    build: Callable[[], nn.Module], cost: Callable[..., Tensor], x: Tensor, held: int = data.HELD_OUT, **options: Any
) -> Task:
    """Anything with a loss of its own: cost(model, examples)."""
    train, test = x[:-held], x[-held:]

    def judge(model: nn.Module) -> Judged:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            found = float(cost(model, test))
        return found, found

    return Task(build, lambda model, index: cost(model, train[index]), judge, len(train), **options)


def _pictures(
    draw: Draw, folder: Path, names: Sequence[str] = ("mnist", "fashion", "cifar", "small cifar")
) -> tuple[Tensor, Tensor]:
    return data.pictures(folder, draw.pick(names))


def _mlp(draw: Draw, folder: Path, depths: Sequence[int], norms: Sequence[str], he: bool = False) -> Task:
    x, y = _pictures(draw, folder)
    width, depth, norm = (
        draw.pick((32, 64, 128, 256) if he or max(depths) > 5 else (32, 64, 128, 256, 512)),
        draw.pick(depths),
        draw.pick(norms),
    )
    act = draw.pick((nn.ReLU, nn.ReLU, nn.GELU, nn.Tanh))

    def build() -> nn.Module:
        model = nets.mlp(x[0].numel(), 10, width, depth, norm, act)
        for layer in model.modules():
            if he and isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight)
        return model

    return classified(build, x, y)


def _convolution(draw: Draw, folder: Path, make: Callable[..., nn.Module]) -> Task:
    x, y = _pictures(draw, folder)
    width, depth = draw.pick((8, 16, 16, 32)), draw.pick((1, 2, 3))
    return classified(lambda: make(x.shape[1], 10, width, depth), x, y, batches=(8, 16, 32, 64, 128), steps=(100, 600))


def _cnn(norm: bool) -> Callable[[Draw, Path], Task]:
    def make(draw: Draw, folder: Path) -> Task:
        more = draw.pick((2, 3, 4))
        return _convolution(
            draw, folder, lambda channels, outputs, width, depth: nets.cnn(channels, outputs, width, more, norm)
        )

    return make


def _vit(mixer: bool) -> Callable[[Draw, Path], Task]:
    def make(draw: Draw, folder: Path) -> Task:
        x, y = _pictures(draw, folder, ("mnist", "fashion", "cifar", "cifar"))
        width, depth = draw.pick((32, 64, 96)), draw.pick((1, 2, 4))
        return classified(
            lambda: nets.vit(x.shape[1], x.shape[2], 10, width, depth, mixer),
            x,
            y,
            optimizers=ADAM,
            batches=(8, 16, 32, 64),
            steps=(100, 400),
        )

    return make


def _gpt(init: str) -> Callable[[Draw, Path], Task]:
    def make(draw: Draw, folder: Path) -> Task:
        text, symbols = data.text(folder, draw.pick(tuple(data.TEXTS)))
        width, depth, length = draw.pick((32, 64, 64, 128)), draw.pick((1, 2, 4)), draw.pick((16, 32, 64))
        return written(
            lambda: nets.gpt(symbols, length, width, depth, init),
            text,
            length,
            optimizers=ADAM,
            batches=(4, 8, 16, 32),
            steps=(100, 350),
        )

    return make


def _recurrent(draw: Draw, folder: Path) -> Task:
    text, symbols = data.text(folder, draw.pick(tuple(data.TEXTS)))
    width, length, kind = draw.pick((32, 64, 128, 256)), draw.pick((16, 32)), draw.pick((nn.LSTM, nn.LSTM, nn.GRU))
    return written(
        lambda: nets.Recurrent(symbols, width, kind), text, length, batches=(8, 16, 32, 64), steps=(100, 500)
    )


def _bag(draw: Draw, folder: Path) -> Task:
    """Which of two texts some pairs of characters come from."""
    width, depth, length = draw.pick((16, 32, 64, 128)), draw.pick((1, 2)), draw.pick((12, 24))
    parts = []
    for name in data.TEXTS:
        text, symbols = data.text(folder, name)
        pairs = text[:-1] * symbols + text[1:]
        parts.append(pairs[: 6000 * length].view(-1, length))
    x, y = torch.cat(parts), torch.arange(2).repeat_interleave(6000)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return classified(lambda: nets.Bag(symbols**2, 2, width, depth), x[order], y[order])


def _autoencoder(variational: bool) -> Callable[[Draw, Path], Task]:
    def make(draw: Draw, folder: Path) -> Task:
        x = _pictures(draw, folder, ("mnist", "fashion", "small cifar"))[0].flatten(1)
        width, code = draw.pick((64, 128, 256, 512)), draw.pick((4, 8, 16))

        def cost(model: nn.Module, x: Tensor) -> Tensor:
            again, price = model(x)
            return ((again - x).square().sum(1) + price).mean() if variational else (again - x).square().mean()

        return measured(
            lambda: nets.VAE(x.shape[1], width, code, variational),
            cost,
            x,
            optimizers=("adam", "adam", "adamw", "momentum"),
        )

    return make


def _denoiser(draw: Draw, folder: Path) -> Task:
    x = _pictures(draw, folder, ("mnist", "fashion", "small cifar"))[0].flatten(1)
    width, depth = draw.pick((64, 128, 256)), draw.pick((1, 2, 4))

    def cost(model: nn.Module, x: Tensor) -> Tensor:
        time, noise = torch.rand(len(x), device=x.device), torch.randn_like(x)
        mixed = (1 - time)[:, None].sqrt() * x + time[:, None].sqrt() * noise
        return (model(mixed, time) - noise).square().mean()

    return measured(lambda: nets.Denoiser(x.shape[1], width, depth), cost, x, optimizers=("adam", "adamw", "adamw"))


def _contrastive(draw: Draw, folder: Path) -> Task:
    """Two noisy views of a picture find each other among those of a batch."""
    x = _pictures(draw, folder)[0]
    width, depth, norm = draw.pick((64, 128, 256)), draw.pick((1, 2, 3)), draw.pick(("none", "batch", "layer"))

    def cost(model: nn.Module, x: Tensor) -> Tensor:
        left, right = (functional.normalize(model(x * (torch.rand_like(x) > 0.3)), dim=1) for _ in range(2))
        return functional.cross_entropy(left @ right.T / 0.2, torch.arange(len(x), device=x.device))

    return measured(
        lambda: nets.mlp(x[0].numel(), 32, width, depth, norm),
        cost,
        x,
        held=500,
        batches=(32, 64, 128, 256),
        steps=(100, 600),
    )


def _graph(draw: Draw, folder: Path) -> Task:
    """Pictures as nodes, joined to those most like them; few have a label, and every step sees the whole graph."""
    x, y = _pictures(draw, folder, ("digits", "mnist", "fashion"))
    count, near = min(len(x), draw.pick((600, 1200))), draw.pick((4, 8))
    x, y = x[:count].flatten(1), y[:count]
    distance = torch.cdist(x, x)
    closest = distance.topk(near + 1, largest=False).indices
    neighbours = torch.zeros(count, count).scatter_(1, closest, 1.0)
    neighbours = ((neighbours + neighbours.T) > 0).float()
    neighbours = neighbours / neighbours.sum(1, keepdim=True)
    labelled = draw.pick((100, 300))
    width, depth, dropout = draw.pick((16, 64, 256)), draw.pick((2, 2, 3)), draw.pick((0.0, 0.5))

    def loss(model: nn.Module, index: Tensor) -> Tensor:
        return functional.cross_entropy(model(x, neighbours)[:labelled], y[:labelled])

    def judge(model: nn.Module) -> Judged:
        logits = model(x, neighbours)[labelled:]
        return float((logits.argmax(1) != y[labelled:]).float().mean()), float(
            functional.cross_entropy(logits, y[labelled:])
        )

    build = lambda: nets.Graph(x.shape[1], 10, width, depth, dropout)  # noqa: E731
    return Task(
        build,
        loss,
        judge,
        labelled,
        optimizers=("adam", "adam", "adamw", "momentum"),
        batches=(labelled,),
        steps=(60, 300),
        whole=True,
    )


def _table(draw: Draw, folder: Path) -> Task:
    x, y, classes = data.table(folder, draw.pick(data.tables(folder)))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y, held = x[order], y[order], min(1000, len(x) // 4)
    width, depth = draw.pick((16, 32, 64, 128)), draw.pick((1, 2, 3))
    norm, batches = draw.pick(("none", "none", "batch", "layer")), (8, 16, 32, 64, 128)
    build = lambda: nets.mlp(x.shape[1], classes, width, depth, norm)  # noqa: E731
    if classes > 1:
        return classified(build, x, y, held, batches=batches)
    rows = torch.cat([x, y.reshape(len(x), 1)], dim=1)

    def cost(model: nn.Module, rows: Tensor) -> Tensor:
        return (model(rows[:, :-1])[:, 0] - rows[:, -1]).square().mean()

    return measured(build, cost, rows, held, batches=batches)


def trained(build: Callable[[], nn.Module], task: Task, steps: int, lr: float = 3e-3) -> dict[str, Tensor]:
    """Weights after a training by Adam with a linear decay."""
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for index in torch.randint(task.examples, (steps, 32)):
        optimizer.zero_grad()
        task.loss(model, index).backward()
        optimizer.step()
        decay.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _tuned(same: bool) -> Callable[[Draw, Path], Task]:
    def make(draw: Draw, folder: Path) -> Task:
        source = draw.pick(("fashion", "cifar"))
        x, y = data.pictures(folder, source)
        kind, width, depth = draw.pick(("cnn", "resnet", "vit", "mlp")), draw.pick((16, 32)), draw.pick((1, 2, 3))
        makers: dict[str, Callable[[], nn.Module]] = {
            "cnn": lambda: nets.cnn(x.shape[1], 10, width, depth + 1, True),
            "resnet": lambda: nets.resnet(x.shape[1], 10, width, depth),
            "vit": lambda: nets.vit(x.shape[1], x.shape[2], 10, 2 * width, depth),
            "mlp": lambda: nets.mlp(x[0].numel(), 10, 4 * width, depth),
        }
        half = len(x) // 2
        first = (x[:half], y[:half]) if same else (x[:half][y[:half] < 5], y[:half][y[:half] < 5])
        rest = (x[half:], y[half:]) if same else (x[half:][y[half:] >= 5], y[half:][y[half:] >= 5])
        weights = trained(makers[kind], classified(makers[kind], *first, held=100), draw.pick((300, 900)))

        def build() -> nn.Module:
            model = makers[kind]()
            model.load_state_dict(weights)
            return model

        return classified(build, *rest, held=1200, batches=(8, 16, 32, 64), steps=(60, 500))

    return make


def _adapters(draw: Draw, folder: Path) -> Task:
    """A language model of one text, fitted to another one by matrices of low rank."""
    first, second = draw.pick((("shakespeare", "wikipedia"), ("wikipedia", "shakespeare")))
    width, depth, rank, length = draw.pick((64, 128)), draw.pick((2, 4)), draw.pick((2, 4, 8)), 32
    text, symbols = data.text(folder, first)
    begin = lambda: nets.gpt(symbols, length, width, depth, "gpt2")  # noqa: E731
    weights = trained(begin, written(begin, text, length), 600)

    def build() -> nn.Module:
        model = begin()
        model.load_state_dict(weights)
        return nets.with_adapters(model, rank)

    return written(
        build,
        data.text(folder, second)[0],
        length,
        optimizers=("adam", "adamw"),
        batches=(4, 8, 16, 32),
        steps=(60, 300),
    )


FAMILIES: dict[str, Callable[[Draw, Path], Task]] = {
    "mlp": lambda draw, folder: _mlp(draw, folder, (1, 2, 3), ("none",)),
    "mlp, norms": lambda draw, folder: _mlp(draw, folder, (1, 2, 3, 5), ("batch", "layer")),
    "deep mlp": lambda draw, folder: _mlp(draw, folder, (6, 9, 12), ("none",), he=True),
    "deep mlp, norms": lambda draw, folder: _mlp(draw, folder, (6, 9, 12), ("batch", "layer")),
    "cnn": _cnn(False),
    "cnn, norms": _cnn(True),
    "resnet": lambda draw, folder: _convolution(draw, folder, nets.resnet),
    "depthwise": lambda draw, folder: _convolution(draw, folder, lambda *sizes: nets.resnet(*sizes, depthwise=True)),
    "vit": _vit(False),
    "mixer": _vit(True),
    "gpt": _gpt("gpt2"),
    "gpt, torch": _gpt("torch"),
    "recurrent": _recurrent,
    "bag": _bag,
    "vae": _autoencoder(True),
    "autoencoder": _autoencoder(False),
    "noise": _denoiser,
    "contrastive": _contrastive,
    "graph": _graph,
    "table": _table,
    "tuned, same": _tuned(True),
    "tuned, other": _tuned(False),
    "adapters": _adapters,
}
"""By name. Those that end in "norms" have a norm after every layer."""
