"""Distributions of small trainings to learn a schedule from, made from any dataset of pictures.

They train and validate on the dataset's training pictures only. Its validation and test pictures stay unseen.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mlrsnet_lab import datasets, models
from mlrsnet_lab.datasets.images import ImageDataset, resize
from mlrsnet_lab.horizon import Data, TaskSampler
from mlrsnet_lab.horizon.task import ModelFactory

SIDE = 16
"""Larger pictures are resized to this side."""

SMALL: dict[str, Any] = {
    "horizons": (50, 200),
    "batch_sizes": (16, 32),
    "num_classes": (5, None),
    "train_sizes": (100, 600),
    "label_noises": (0.0, 0.1, 0.2),  # without noise most trainings end near loss 0, and hardly differ
    "val_size": 300,
}
"""For up to a few thousand pictures, such as digits: seconds per generation on a CPU."""

LARGE: dict[str, Any] = {
    "horizons": (250, 2000),
    "batch_sizes": (128,),
    "num_classes": (2, 4, None),
    "train_sizes": (2_000, 50_000),
    "val_size": 1000,
}
"""For more pictures, such as CIFAR-10: seconds per generation on a GPU."""

SMALL_NETWORKS: tuple[dict[str, Any], ...] = (
    {"model": "mlp", "width": 32, "depth": 1},
    {"model": "mlp", "width": 32, "depth": 2},
    {"model": "mlp", "width": 32, "depth": 3},
    {"model": "mlp", "width": 32, "depth": 1, "norm": "layer"},
    {"model": "mlp", "width": 32, "depth": 2, "norm": "layer"},
    {"model": "mlp", "width": 32, "depth": 1, "norm": "batch"},
    {"model": "mlp", "width": 32, "depth": 2, "norm": "batch"},
    {"model": "patch_net", "width": 16, "hidden": 32},
)
LARGE_NETWORKS: tuple[dict[str, Any], ...] = ({"model": "patch_net"},)
LARGE_FROM = 5_000


def inner_tasks(name: str, root: Path | None = None, **options: Any) -> TaskSampler:
    """The distribution for a dataset of the lab, by its name. Options such as `classes` go to the dataset.

    >>> inner_tasks("digits", classes=(0, 1, 2, 3)).sample(seed=0, count=1)[0].data.num_classes
    4
    """
    dataset = datasets.load(name, root=root, **options)
    if not isinstance(dataset, ImageDataset):
        raise ValueError(f"task must be a dataset of pictures that fit in memory, got {name!r}: use digits or cifar10")
    is_large = len(dataset.train.labels) >= LARGE_FROM
    networks, settings = (LARGE_NETWORKS, LARGE) if is_large else (SMALL_NETWORKS, SMALL)
    fitting = _fit(settings, dataset.train.labels.bincount(minlength=dataset.num_classes).sort().values)
    return TaskSampler([pictures(dataset)], [factory(**network) for network in networks], **fitting)


def _fit(settings: dict[str, Any], counts: Tensor) -> dict[str, Any]:
    """Limit the settings to what the dataset has pictures for, even if the rarest classes are drawn. `counts` is sorted."""
    val_size = max(1, min(settings["val_size"], int(counts.sum()) // 4))
    left = int(counts.sum()) - val_size
    batch_sizes = tuple(size for size in settings["batch_sizes"] if size <= left) or (left,)
    needed = val_size + max(batch_sizes)
    several = tuple(
        n for n in settings["num_classes"] if n is not None and n < len(counts) and counts[:n].sum() >= needed
    )
    return {**settings, "val_size": val_size, "batch_sizes": batch_sizes, "num_classes": (*several, None)}


def pictures(dataset: ImageDataset) -> Data:
    """The training pictures, resized to `SIDE` if larger, normalised, (N, C, H, W)."""
    small = resize(dataset.train, SIDE) if max(dataset.shape[1:]) > SIDE else dataset.train
    mean, std = torch.tensor(dataset.mean), torch.tensor(dataset.std)
    inputs = ((small.images.float() - mean) / std).permute(0, 3, 1, 2).contiguous()
    return Data(inputs, small.labels, dataset.num_classes, dataset.name, mirrored=dataset.flip)


def factory(*, model: str, **options: Any) -> ModelFactory:
    """A network of the lab that fits the data's pictures."""

    def build(data: Data) -> nn.Module:
        channels, height, width = data.inputs.shape[1:]
        return models.build_image(model, (channels, height, width), data.num_classes, **options)

    return build
