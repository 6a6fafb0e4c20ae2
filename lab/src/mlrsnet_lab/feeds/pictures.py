"""Pictures on the device as uint8. Crop, flip and normalisation run there, one batch at a time."""

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from mlrsnet_lab.datasets import ImageDataset, Pictures
from mlrsnet_lab.feeds.base import DeviceData, ShuffledFeed
from mlrsnet_lab.processes import ALONE, Processes

EVAL_BATCH = 1000
SOME = slice(5000)
"""The training pictures that `evaluate("train")` uses."""


class PictureFeed(ShuffledFeed):
    """Random batches of one part.

    The plan of an epoch (order, shifts, flips) is drawn at its start and copied to the device, where a cursor moves through it.
    Pixels are stored as (N, H, W, C), so that batches are in channels_last.
    """

    def __init__(
        self,
        dataset: ImageDataset,
        part: str,
        batch_size: int,
        seed: int,
        device: torch.device,
        *,
        augment: bool = False,
        processes: Processes = ALONE,
    ) -> None:
        pictures: Pictures = getattr(dataset, part)
        super().__init__(part, len(pictures.labels), "pictures", batch_size, seed, device, processes)
        _, self.height, self.width = dataset.shape
        self.pad, self.flip = (dataset.pad, dataset.flip) if augment else (0, False)
        padded = pad(pictures.images, (0, 0, self.pad, self.pad, self.pad, self.pad))
        self.images, self.labels = padded.to(device), pictures.labels.to(device)
        self.normalise = Normalise(dataset.mean, dataset.std, device)
        self.top, self.left, self.mirror = torch.zeros(3, self.count, dtype=torch.int64, device=device)
        self.rows, self.columns = (torch.arange(n, device=device) for n in (self.height, self.width))

    def loss(self, model: nn.Module) -> Tensor:
        """See `Feed`."""
        images, labels = self.batch()
        return cross_entropy(model(images), labels)

    def batch(self) -> tuple[Tensor, Tensor]:
        """The next pictures, as floats (B, C, H, W), and their labels."""
        places = self.cursor + self.in_batch
        chosen = self.order.index_select(0, places)
        self.cursor += self.batch_size
        images = self._cut(chosen, places) if self.pad or self.flip else self.images.index_select(0, chosen)
        return self.normalise(images), self.labels.index_select(0, chosen)

    def plan(self, epoch: int) -> torch.Generator:
        """See `ShuffledFeed`. Also draws shifts and flips."""
        generator = super().plan(epoch)
        if self.pad or self.flip:
            shifts = torch.randint(2 * self.pad + 1, (2, self.count), generator=generator)
            self.top.copy_(shifts[0])
            self.left.copy_(shifts[1])
            self.mirror.copy_(torch.randint(1 + self.flip, (self.count,), generator=generator))
        return generator

    def _cut(self, chosen: Tensor, places: Tensor) -> Tensor:
        """Crop windows from the padded pictures and flip them as planned, in one gather."""
        top, left, mirror = (plan.index_select(0, places).unsqueeze(1) for plan in (self.top, self.left, self.mirror))
        rows = top + self.rows
        columns = left + self.columns + mirror * (self.width - 1 - 2 * self.columns)
        return self.images[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]


class Normalise:
    """uint8 (B, H, W, C) -> (x - mean) / std as floats (B, C, H, W), in channels_last."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> None:
        self.mean = torch.tensor(mean, dtype=torch.float32, device=device)
        self.std = torch.tensor(std, dtype=torch.float32, device=device)

    def __call__(self, images: Tensor) -> Tensor:
        """Normalise a batch."""
        return ((images.float() - self.mean) / self.std).permute(0, 3, 1, 2)


class PictureData(DeviceData):
    """Pictures on a device. Evaluation of `train` uses some of them, without augmentation."""

    @cached_property
    def parts(self) -> dict[str, Pictures]:
        """This process's share of the parts that were evaluated, on the device."""
        return {}

    @property
    def normalise(self) -> "Normalise":
        """What makes floats of bytes."""
        normalise: Normalise = self.train.normalise
        return normalise

    def feed(self, part: str, batch_size: int, seed: int) -> PictureFeed:
        """See `DeviceData`."""
        augment = part == "train" or self.dataset.augment_val
        return PictureFeed(self.dataset, part, batch_size, seed, self.device, augment=augment, processes=self.processes)

    def shown(self, part: str) -> tuple[int, Iterator[tuple[Tensor, Tensor]]]:
        """See `DeviceData`."""
        whole: Pictures = self.dataset.train[SOME] if part == "train" else getattr(self.dataset, part)
        if part not in self.parts:
            own = whole[self.processes.every]
            self.parts[part] = Pictures(own.images.to(self.device), own.labels.to(self.device))
        images, labels = (kept.split(EVAL_BATCH) for kept in (self.parts[part].images, self.parts[part].labels))
        return len(whole.labels), zip(map(self.normalise, images), labels, strict=True)
