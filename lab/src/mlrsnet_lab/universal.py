"""The broad distribution that the shipped default is learned from: many kinds of small trainings.

A kind is a dataset, a network, an optimizer, a batch size, label smoothing, clipping, and whether it starts from trained weights.
Its tasks differ in horizon, classes, amount of data, weight decay and label noise. Kinds are drawn once, from a seed.

Choices are made on validation kinds, which are drawn separately. Two datasets, SVHN and Penn Treebank, occur only there. Only the
training part of any dataset is used.

Datasets are made small once and kept in `<data folder>/universal`, with up to 20,000 examples each. A machine that has this folder
needs no other data.
"""

import io
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mlrsnet.files.untrusted import reason
from mlrsnet.files.writing import write_atomically
from mlrsnet_lab import datasets
from mlrsnet_lab.datasets.images import ImageDataset, mean_and_std
from mlrsnet_lab.distributions import factory
from mlrsnet_lab.files.archives import load_arrays
from mlrsnet_lab.horizon import Data, Mixture, TaskSampler
from mlrsnet_lab.horizon.sampler import pick
from mlrsnet_lab.horizon.seeds import generator
from mlrsnet_lab.horizon.task import ModelFactory
from mlrsnet_lab.models.small_text import AttentionNet, RecurrentNet

FOLDER = "universal"
EXAMPLES = 20_000
LENGTH = 24
"""Characters in a piece of text."""


@dataclass(frozen=True)
class SmallSource:
    """A dataset of the lab, made small: pictures of this side, or pieces of text."""

    name: str
    dataset: str
    side: int | None = None


TRAINING = (
    SmallSource("digits", "digits", 8),
    SmallSource("mnist-14", "mnist", 14),
    SmallSource("fashion-14", "fashion_mnist", 14),
    SmallSource("cifar10-16", "cifar10", 16),
    SmallSource("cifar10-8", "cifar10", 8),
    SmallSource("cifar100-16", "cifar100", 16),
    SmallSource("shakespeare", "tinyshakespeare"),
)
VALIDATION = (*TRAINING, SmallSource("svhn-16", "svhn", 16), SmallSource("ptb", "ptb-chars"))

NORMS = ("none", "batch", "layer")
PICTURE_NETWORKS: tuple[dict[str, Any], ...] = (
    *({"model": "mlp", "width": 64, "depth": depth, "norm": norm} for depth in (1, 2, 3) for norm in NORMS),
    *({"model": "patch_net", "norm": norm} for norm in NORMS),
    *({"model": "small_cnn", "width": 8, "norm": norm} for norm in NORMS),
)
TEXT_NETWORKS: tuple[ModelFactory, ...] = (
    lambda data: RecurrentNet(data.num_classes),
    lambda data: AttentionNet(data.num_classes, LENGTH),
    lambda data: AttentionNet(data.num_classes, LENGTH, depth=2),
)
OPTIMIZERS = ("sgd", "sgdm", "adam", "adamw")
BATCH_SIZES = (16, 32, 64, 128, 256, 512)
LARGEST_BATCH = {"small_cnn": 128, "text": 32}
"""The largest batch that hundreds of copies of these networks can train with."""

LONGEST_TEXT = 1000
"""Most steps of a training on text, which is the slowest."""

CLIP_NORMS = (None, 0.25)
"""For text; pictures are not clipped."""

DECAYS = {"adamw": (0.0, 0.01, 0.1)}
OTHER_DECAYS = (0.0, 1e-4, 5e-4, 2e-3)


def distribution(
    root: Path | None = None, *, kinds: int = 32, validation: int = 16, horizons: tuple[int, int] = (100, 2000)
) -> tuple[Mixture, Mixture]:
    """The kinds to learn from, and the kinds to validate on."""
    both = []
    for part, sources, count, at_once in (("train", TRAINING, kinds, 8), ("val", VALIDATION, validation, 4)):
        random = generator("universal", part)
        order = [sources[index % len(sources)] for index in range(count)]
        both.append(Mixture([_kind(load(source, root), horizons, random) for source in order], at_once))
    return both[0], both[1]


def _kind(data: Data, horizons: tuple[int, int], random: torch.Generator) -> TaskSampler:
    is_text = data.targets.ndim > 1
    network = {"model": "text"} if is_text else pick(PICTURE_NETWORKS, random)
    model = pick(TEXT_NETWORKS, random) if is_text else factory(**network)
    largest = min(len(data.inputs) // 8, LARGEST_BATCH.get(network["model"], len(data.inputs)))
    optimizer, batch_size = pick(OPTIMIZERS, random), pick([n for n in BATCH_SIZES if n <= largest], random)
    tuned = float(torch.rand((), generator=random)) < 1 / 8
    if tuned:
        model, data = begin_trained(model, data)
    several = not is_text and not tuned
    return TaskSampler(
        [data],
        [model],
        horizons=(horizons[0], max(horizons[0], min(horizons[1], LONGEST_TEXT))) if is_text else horizons,
        batch_sizes=(batch_size,),
        optimizers=(optimizer,),
        weight_decays=DECAYS.get(optimizer, OTHER_DECAYS),
        num_classes=(5, data.num_classes // 2 + 1, None) if several else (None,),
        train_sizes=(500, EXAMPLES),
        val_size=256,
        label_noises=(0.0, 0.0, 0.1, 0.2) if several else (0.0,),
        label_smoothings=(pick((0.0, 0.0, 0.1), random),),
        clip_norm=pick(CLIP_NORMS, random) if is_text else None,
    )


def begin_trained(model: ModelFactory, data: Data, steps: int = 300, batch: int = 64) -> tuple[ModelFactory, Data]:
    """For fine-tuning: networks that were trained on a quarter of the data, and the rest of the data."""
    cut = len(data.inputs) // 4
    first, rest = _part(data, slice(None, cut)), _part(data, slice(cut, None))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        network = model(first)
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
        for index in torch.randint(cut, (steps, batch)):
            outputs = network(first.inputs[index])
            loss = nn.functional.cross_entropy(outputs.flatten(0, -2), first.targets[index].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    weights = {name: value.clone() for name, value in network.state_dict().items()}

    def begin(data: Data) -> nn.Module:
        made = model(data)
        made.load_state_dict(weights)
        return made

    return begin, rest


def _part(data: Data, part: slice) -> Data:
    return Data(data.inputs[part], data.targets[part], data.num_classes, data.name, data.mirrored)


@lru_cache(maxsize=16)
def load(source: SmallSource, root: Path | None = None) -> Data:
    """A small dataset, read from the folder where it is kept, or made from the lab's."""
    path = datasets.data_root(root) / FOLDER / f"{source.name}.npz"
    if not path.is_file():
        file = io.BytesIO()
        np.savez_compressed(file, **_make(source, root))
        write_atomically(path, file.getvalue())
    kept = _read(path)
    inputs, targets = torch.from_numpy(kept["inputs"]), torch.from_numpy(kept["targets"]).long()
    classes, mirrored = int(kept["classes"]), bool(kept["mirrored"])
    if source.side is None:
        return Data(inputs.long(), targets, classes, source.name)
    mean, std = (torch.tensor(values) for values in mean_and_std(inputs))
    pictures = ((inputs.float() - mean) / std).permute(0, 3, 1, 2).contiguous()
    return Data(pictures, targets, classes, source.name, mirrored)


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = load_arrays(path)
        return {name: kept[name] for name in ("inputs", "targets", "classes", "mirrored")}
    except Exception as error:  # a file that is not an .npz can fail in any way
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__}: {reason(error)}): delete it, and it will be made again"
        ) from None


def _make(source: SmallSource, root: Path | None) -> dict[str, Any]:
    options = {} if source.side is None else {"size": source.side}
    dataset = datasets.load(source.dataset, root=root, **options)
    if isinstance(dataset, ImageDataset):
        chosen = _some(len(dataset.train.labels), source)
        inputs, targets = dataset.train.images[chosen].numpy(), dataset.train.labels[chosen].numpy()
        return {"inputs": inputs, "targets": targets, "classes": dataset.num_classes, "mirrored": dataset.flip}
    assert isinstance(dataset, datasets.TextDataset)
    pieces = dataset.train[: len(dataset.train) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
    pieces = pieces[_some(len(pieces), source)].to(torch.uint8)
    inputs, targets = pieces[:, :-1].numpy(), pieces[:, 1:].numpy()
    return {"inputs": inputs, "targets": targets, "classes": dataset.num_classes, "mirrored": False}


def _some(count: int, source: SmallSource) -> Tensor:
    return torch.randperm(count, generator=generator("examples", source.name))[:EXAMPLES]
