"""Pictures that stay on disk. Worker processes read them, one batch ahead of the training."""

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mlrsnet.lab.datasets import ImageFolder
from mlrsnet.lab.feeds.base import ACCURACY, Score, require_batch, shuffled
from mlrsnet.lab.feeds.pictures import Normalise, score, sums


class StreamedFeed:
    """`prepare` copies the next batch to buffers on the device; `loss` reads them."""

    def __init__(
        self, dataset: ImageFolder, part: str, batch_size: int, seed: int, device: torch.device, workers: int
    ) -> None:
        self.dataset, self.part, self.batch_size, self.seed, self.workers = dataset, part, batch_size, seed, workers
        self.count = dataset.sizes[part]
        self.steps = self.count // batch_size
        require_batch(part, self.steps, batch_size, f"{self.count} pictures")
        self.images = torch.zeros(batch_size, dataset.size, dataset.size, 3, dtype=torch.uint8, device=device)
        self.labels = torch.zeros(batch_size, dtype=torch.int64, device=device)
        self.normalise = Normalise(dataset.mean, dataset.std, device)
        self.batches: Iterator[tuple[Tensor, Tensor]] | None = None
        self.position = 0

    def prepare(self) -> None:
        """See `Feed`."""
        if self.batches is None or self.position % self.steps == 0:
            epoch, within = divmod(self.position, self.steps)
            order = shuffled(self.count, self.seed, epoch)[0][within * self.batch_size : self.steps * self.batch_size]
            self.batches = self.dataset.batches(
                self.part, self.batch_size, order=order, seed=self.seed * 100_003 + epoch, workers=self.workers
            )
        images, labels = next(self.batches)
        self.images.copy_(images, non_blocking=True)
        self.labels.copy_(labels, non_blocking=True)
        self.position += 1

    def loss(self, model: nn.Module) -> Tensor:
        """See `Feed`."""
        return cross_entropy(model(self.normalise(self.images)), self.labels)

    def state_dict(self) -> dict[str, Any]:
        """See `Feed`."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Feed`."""
        self.position, self.batches = state["position"], None


class StreamedData:
    """A folder of pictures, streamed to a device."""

    metric = ACCURACY

    def __init__(self, dataset: ImageFolder, batch_size: int, seed: int, device: torch.device) -> None:
        self.dataset, self.batch_size, self.seed, self.device = dataset, batch_size, seed, device
        self.workers = min(8, os.cpu_count() or 1)
        self.train = StreamedFeed(dataset, "train", batch_size, seed, device, self.workers)
        val_batch = min(batch_size, dataset.sizes["val"])
        self.val = StreamedFeed(dataset, "val", val_batch, seed + 2**32, device, min(1, self.workers))

    def calibration(self) -> StreamedFeed:
        """See `DeviceData`."""
        return StreamedFeed(self.dataset, "train", self.batch_size, self.seed + 2**33, self.device, self.workers)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, part: str) -> Score:
        """See `DeviceData`."""
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        for images, labels in self.dataset.batches(part, self.batch_size, order=None, seed=0, workers=self.workers):
            total += sums(model(self.train.normalise(images.to(self.device))), labels.to(self.device))
        return score(total, self.dataset.sizes[part])
