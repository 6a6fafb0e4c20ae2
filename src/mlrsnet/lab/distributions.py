"""Distributions of small trainings to learn a schedule from, made from any task of pictures.

Only the task's training pictures are used, to train on and to judge by: its validation and test pictures stay unseen.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mlrsnet.horizon import Data, TaskSampler
from mlrsnet.lab import datasets, models
from mlrsnet.lab.datasets.images import ImageDataset, resize

SIDE = 16
"""Larger pictures are made so small."""

SMALL: dict[str, Any] = {
    "horizons": (50, 200),
    "batch_sizes": (16, 32),
    "num_classes": (5, None),
    "train_sizes": (100, 600),
    "label_noises": (0.0, 0.1, 0.2),  # without any, most end with hardly a loss, and little is left to compare
    "val_size": 300,
}
"""For sets of up to a few thousand pictures, such as digits: seconds a generation on a CPU."""

LARGE: dict[str, Any] = {
    "horizons": (250, 2000),
    "batch_sizes": (128,),
    "num_classes": (2, 4, None),
    "train_sizes": (2_000, 50_000),
    "val_size": 1000,
}
"""For the larger ones, such as CIFAR-10: seconds a generation on a GPU."""

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
    """The distribution for a task of the lab, by its name; options go to the task, such as `classes`.

    >>> inner_tasks("digits", classes=(0, 1, 2, 3)).sample(seed=0, count=1)[0].data.num_classes
    4
    """
    task = datasets.load(name, root=root, **options)
    if not isinstance(task, ImageDataset):
        raise ValueError(f"the task must be one of pictures that fit in memory, got {name!r}: take digits or cifar10")
    is_large = len(task.train.labels) >= LARGE_FROM
    networks, settings = (LARGE_NETWORKS, LARGE) if is_large else (SMALL_NETWORKS, SMALL)
    fitting = _fit(settings, task.train.labels.bincount(minlength=task.num_classes).sort().values)
    return TaskSampler([pictures(task)], [factory(**network) for network in networks], **fitting)


def _fit(settings: dict[str, Any], counts: Tensor) -> dict[str, Any]:
    """Only what the set has pictures for, even if the rarest classes are drawn; `counts` is sorted."""
    val_size = max(1, min(settings["val_size"], int(counts.sum()) // 4))
    left = int(counts.sum()) - val_size
    batch_sizes = tuple(size for size in settings["batch_sizes"] if size <= left) or (left,)
    needed = val_size + max(batch_sizes)
    several = tuple(
        n for n in settings["num_classes"] if n is not None and n < len(counts) and counts[:n].sum() >= needed
    )
    return {**settings, "val_size": val_size, "batch_sizes": batch_sizes, "num_classes": (*several, None)}


def pictures(task: ImageDataset) -> Data:
    """The training pictures, no larger than `SIDE`, normalised, (N, C, H, W)."""
    small = resize(task.train, SIDE) if max(task.shape[1:]) > SIDE else task.train
    mean, std = torch.tensor(task.mean), torch.tensor(task.std)
    inputs = ((small.images.float() - mean) / std).permute(0, 3, 1, 2).contiguous()
    return Data(inputs, small.labels, task.num_classes, task.name, mirrored=task.flip)


def factory(*, model: str, **options: Any) -> Callable[[Data], nn.Module]:
    """A network of the lab for whatever pictures the data has."""

    def build(data: Data) -> nn.Module:
        channels, height, width = data.inputs.shape[1:]
        return models.build_image(model, (channels, height, width), data.num_classes, **options)

    return build
