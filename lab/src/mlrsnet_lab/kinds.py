"""A wide distribution of small trainings, to learn schedules from.

Each kind is drawn from its number: a family of networks, a dataset, an optimizer, a horizon and everything else that decides a
training. The families are those that users train: fully connected networks with and without normalisation, deep ones without,
convolutions, residual networks, depthwise convolutions, LSTMs, transformers with torch's and with GPT-2's initialisation,
regression, and fine-tuning on the same and on shifted data. Only the training part of any dataset is used.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mlrsnet_lab import models
from mlrsnet_lab.horizon import Data, Task
from mlrsnet_lab.horizon.sampler import log_uniform, pick
from mlrsnet_lab.horizon.seeds import generator
from mlrsnet_lab.horizon.task import ModelFactory
from mlrsnet_lab.models.small_pictures import depthwise_net, residual_net
from mlrsnet_lab.models.small_text import AttentionNet, RecurrentNet
from mlrsnet_lab.models.transformer import INIT_STD
from mlrsnet_lab.universal import DECAYS, LENGTH, OPTIMIZERS, OTHER_DECAYS, TRAINING, VALIDATION, load

FAMILIES = ("mlp", "deep", "cnn", "residual", "depthwise", "lstm", "transformer", "regression", "tuning")
PICTURES = tuple(source for source in TRAINING if source.side)
TEXTS = tuple(source for source in TRAINING if not source.side)
SHIFTS = ("same", "inverted", "classes")
PRE_TRAINING_BATCH = 64
VAL_SIZE = 1024


@dataclass(frozen=True)
class Kind:
    """Everything that decides a training.

    Args:
        family: one of `FAMILIES`.
        source: the dataset's name; see `universal.TRAINING`.
        network: its kind and options.
        optimizer, total_steps, batch_size, weight_decay, label_noise, label_smoothing, clip_norm: see `Task`.
        train_size: examples to train on.
        target_scale: of the numbers to predict, for regression.
        start: for fine-tuning, the steps of the pre-training and the shift of the data after it.
        seed: of weights, split and order.
    """

    family: str
    source: str
    network: dict[str, Any]
    optimizer: str
    total_steps: int
    batch_size: int
    train_size: int
    weight_decay: float = 0.0
    label_noise: float = 0.0
    label_smoothing: float = 0.0
    clip_norm: float | None = None
    target_scale: float = 1.0
    start: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    def data(self, root: Path | None = None) -> Data:
        """The dataset; for regression the lower half of a picture is predicted from the upper one."""
        data = load({source.name: source for source in VALIDATION}[self.source], root)
        return _halves(data, self.target_scale) if self.family == "regression" else data

    def task(self, root: Path | None = None) -> Task:
        """The training."""
        data, model = self.data(root), network_of(self.network)
        if self.start:
            data, model = fine_tuned(self, model, data)
        order = torch.randperm(len(data.inputs), generator=generator("kind split", self.seed))
        held_out = min(VAL_SIZE, len(order) // 4)
        train = order[held_out : held_out + self.train_size]
        return Task(
            data,
            model,
            self.total_steps,
            min(self.batch_size, len(train)),
            train=train,
            val=order[:held_out],
            optimizer=self.optimizer,
            weight_decay=self.weight_decay,
            label_noise=self.label_noise,
            label_smoothing=self.label_smoothing,
            clip_norm=self.clip_norm,
            seed=self.seed,
        )


def draw(number: int, *, horizons: tuple[int, int] = (50, 3000), families: Sequence[str] = FAMILIES) -> Kind:
    """The kind of a number. Families take turns.

    >>> draw(3).family, draw(3) == draw(3)
    ('residual', True)
    """
    random = generator("kind", number)
    family = families[number % len(families)]
    source = pick(TEXTS if family in ("lstm", "transformer") else PICTURES, random).name
    optimizer = pick(OPTIMIZERS, random)
    batch = (
        pick((16, 32, 64, 128), random) if family in ("mlp", "deep", "regression", "tuning") else pick((16, 32), random)
    )
    classes = family not in ("lstm", "transformer", "regression")
    return Kind(
        family,
        source,
        _network(family, random),
        optimizer,
        log_uniform(*horizons, random),
        batch,
        log_uniform(200, 20_000, random),
        weight_decay=pick(DECAYS.get(optimizer, OTHER_DECAYS), random),
        label_noise=pick((0.0, 0.0, 0.1, 0.2), random) if classes and family != "tuning" else 0.0,
        label_smoothing=pick((0.0, 0.0, 0.1), random) if classes else 0.0,
        clip_norm=pick({"lstm": (0.25, 1.0, None), "transformer": (1.0, None)}.get(family, (None,)), random),
        target_scale=pick((1.0, 1.0, 10.0), random) if family == "regression" else 1.0,
        start=_start(random) if family == "tuning" else {},
        seed=int(torch.randint(2**31, (), generator=random)),
    )


def _start(random: torch.Generator) -> dict[str, Any]:
    """A pre-training on a share of the data, and how the data changes after it."""
    share, steps = pick((0.25, 0.75), random), pick((300, 3000), random)
    return {"steps": steps, "share": share, "shift": pick(SHIFTS, random)}


def _mlp(
    random: torch.Generator, depths: tuple[int, ...], norms: tuple[str, ...], inits: tuple[str, ...] = ("torch",)
) -> dict[str, Any]:
    """A fully connected network."""
    width, depth = pick((16, 32, 64, 128), random), pick(depths, random)
    return {"kind": "mlp", "width": width, "depth": depth, "norm": pick(norms, random), "init": pick(inits, random)}


def _network(family: str, random: torch.Generator) -> dict[str, Any]:
    def small_cnn() -> dict[str, Any]:
        return {"kind": "small_cnn", "width": pick((4, 8), random), "norm": pick(("none", "batch", "layer"), random)}

    def patches() -> dict[str, Any]:
        return {"kind": "patch_net", "norm": pick(("none", "batch", "layer"), random)}

    def residual() -> dict[str, Any]:
        skip = pick((True, True, False), random)
        return {"kind": "residual", "width": pick((4, 8, 16), random), "depth": pick((1, 2, 4), random), "skip": skip}

    if family == "mlp":
        return _mlp(random, (1, 2, 3), ("none", "batch", "layer"), ("torch", "torch", "he"))
    if family == "deep":
        return _mlp(random, (5, 8, 12), ("none", "none", "batch", "layer"), ("torch", "he", "he"))
    if family == "cnn":
        return pick((small_cnn, patches), random)()
    if family == "residual":
        return residual()
    if family == "depthwise":
        return {"kind": "depthwise", "width": pick((4, 8), random), "depth": pick((1, 2, 4), random)}
    if family == "lstm":
        return {"kind": "lstm", "width": pick((16, 32, 64), random)}
    if family == "transformer":
        init = pick(("torch", "gpt2"), random)
        return {
            "kind": "transformer",
            "width": pick((16, 32, 64), random),
            "depth": pick((1, 2, 4), random),
            "init": init,
        }
    if family == "regression":
        return _mlp(random, (1, 2, 4), ("none", "none", "layer"), ("torch", "he"))
    return pick((lambda: _mlp(random, (1, 2, 3), ("none", "batch", "layer")), small_cnn, patches, residual), random)()


@lru_cache(maxsize=8)
def _halves(data: Data, scale: float) -> Data:
    cut = data.inputs.shape[2] // 2
    return Data(data.inputs[:, :, :cut], scale * data.inputs[:, :, cut:].flatten(1), name=f"{data.name} halves")


def network_of(network: dict[str, Any]) -> ModelFactory:
    """A function of the data that builds the network."""
    options = {name: value for name, value in network.items() if name not in ("kind", "init")}

    def build(data: Data) -> nn.Module:
        kind = network["kind"]
        if kind in ("lstm", "transformer"):
            made: nn.Module = (
                RecurrentNet(data.num_classes, **options)
                if kind == "lstm"
                else AttentionNet(data.num_classes, LENGTH, **options)
            )
        else:
            channels, height, width = data.inputs.shape[1:]
            own: dict[str, Callable[..., nn.Module]] = {"residual": residual_net, "depthwise": depthwise_net}
            shape = (channels, height, width)
            made = (
                own[kind](shape, data.num_classes, **options)
                if kind in own
                else models.IMAGE[kind](shape, data.num_classes, **options)
            )
        initialise(made, network.get("init", "torch"))
        return made

    return build


@torch.no_grad()
def initialise(model: nn.Module, init: str) -> None:
    """Replace torch's initial weights: `he` (normal, biases 0) or `gpt2` (N(0, 0.02), biases 0)."""
    if init == "torch":
        return
    for parameter in model.parameters():
        if parameter.ndim > 1:
            std = INIT_STD if init == "gpt2" else math.sqrt(2 * parameter.shape[0] / parameter.numel())
            parameter.normal_(std=std)
        elif not (parameter == 1).all():
            parameter.zero_()


def fine_tuned(kind: Kind, model: ModelFactory, data: Data) -> tuple[Data, ModelFactory]:
    """The rest of the data after a pre-training on a part of it, shifted or not, and the network as it was then."""
    cut = round(kind.start["share"] * len(data.inputs))
    shift = kind.start["shift"]
    inputs, targets = data.inputs[:cut], data.targets[:cut]
    if shift == "inverted":
        inputs = -inputs
    elif shift == "classes":
        known = targets < data.num_classes // 2
        inputs, targets = inputs[known], targets[known]
    is_rest = torch.arange(len(data.targets)) >= cut
    if shift == "classes":
        is_rest &= data.targets >= data.num_classes // 2

    @cache
    def weights() -> dict[
        str, Tensor
    ]:  # when first needed: whoever draws a kind may leave its training to another process
        return _pre_trained(kind, model, data, inputs, targets)

    def begin(data: Data) -> nn.Module:
        made = model(data)
        made.load_state_dict(weights())
        return made

    return Data(data.inputs[is_rest], data.targets[is_rest], data.num_classes, data.name, data.mirrored), begin


def _pre_trained(kind: Kind, model: ModelFactory, data: Data, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    steps = kind.start["steps"]
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.default_generator.manual_seed(kind.seed)
        network = model(data)
        optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
        decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, steps)
        for index in torch.randint(len(inputs), (steps, PRE_TRAINING_BATCH)):
            loss = nn.functional.cross_entropy(network(inputs[index]), targets[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            decay.step()
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


@dataclass(frozen=True)
class KindSampler:
    """Draws kinds, each with its own data, network, optimizer and horizon.

    Args:
        horizons: smallest and largest number of steps.
        families: see `kinds.FAMILIES`.
        root: where the data is.

    >>> KindSampler((50, 60), ("mlp",)).numbers(seed=3, count=2) == KindSampler((50, 60), ("mlp",)).numbers(seed=3, count=2)
    True
    """

    horizons: tuple[int, int] = (50, 3000)
    families: Sequence[str] = FAMILIES
    root: Path | None = None

    def numbers(self, seed: int, count: int) -> list[int]:
        """The kinds of a seed."""
        drawn: list[int] = torch.randint(2**31, (count,), generator=generator("kinds", seed)).tolist()
        return drawn

    def sample(self, seed: int, count: int) -> list[Task]:
        """See `horizon.Sampler`."""
        return [
            draw(number, horizons=self.horizons, families=self.families).task(self.root)
            for number in self.numbers(seed, count)
        ]
