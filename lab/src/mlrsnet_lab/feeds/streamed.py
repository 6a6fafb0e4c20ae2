"""Pictures that stay on disk. Worker processes read them, one batch ahead of the training."""

import os
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mlrsnet_lab.datasets import ImageFolder
from mlrsnet_lab.feeds.base import DeviceData, Feed, require_batch, shuffled
from mlrsnet_lab.feeds.pictures import Normalise
from mlrsnet_lab.processes import ALONE, Processes


class StreamedFeed(Feed):
    """`prepare` copies the next batch to buffers on the device; `loss` reads them.

    A process reads only its own share of the pictures.
    """

    def __init__(
        self,
        dataset: ImageFolder,
        part: str,
        batch_size: int,
        seed: int,
        device: torch.device,
        workers: int,
        processes: Processes = ALONE,
    ) -> None:
        self.dataset, self.part, self.batch_size, self.seed, self.workers = dataset, part, batch_size, seed, workers
        self.share, self.own_size = processes.share(batch_size), batch_size // processes.count
        self.count = dataset.sizes[part]
        self.steps = self.count // batch_size
        require_batch(part, self.steps, batch_size, f"{self.count} pictures")
        self.images = torch.zeros(self.own_size, dataset.size, dataset.size, 3, dtype=torch.uint8, device=device)
        self.labels = torch.zeros(self.own_size, dtype=torch.int64, device=device)
        self.normalise = Normalise(dataset.mean, dataset.std, device)
        self.batches: Iterator[tuple[Tensor, Tensor]] | None = None

    def prepare(self) -> None:
        """See `Feed`."""
        if self.batches is None and self.position % self.steps:  # continued in the middle of an epoch
            self.begin(self.position // self.steps)
        super().prepare()
        assert self.batches is not None
        images, labels = next(self.batches)
        self.images.copy_(images, non_blocking=True)
        self.labels.copy_(labels, non_blocking=True)

    def begin(self, epoch: int) -> None:
        """Start to read what is left of an epoch."""
        done = self.position % self.steps * self.batch_size
        order = shuffled(self.count, self.seed, epoch)[0][done : self.steps * self.batch_size]
        own = order.view(-1, self.batch_size)[:, self.share].flatten()
        self.batches = self.dataset.batches(
            self.part, self.own_size, order=own, seed=self.seed * 100_003 + epoch, workers=self.workers
        )

    def loss(self, model: nn.Module) -> Tensor:
        """See `Feed`."""
        return cross_entropy(model(self.normalise(self.images)), self.labels)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Feed`."""
        self.position, self.batches = state["position"], None


class StreamedData(DeviceData):
    """A folder of pictures, streamed to a device."""

    @cached_property
    def workers(self) -> int:
        """Processes that read training pictures."""
        return max(1, min(8, (os.cpu_count() or 1) // self.processes.on_machine))

    def feed(self, part: str, batch_size: int, seed: int) -> StreamedFeed:
        """See `DeviceData`."""
        workers = 1 if part == "val" else self.workers
        return StreamedFeed(self.dataset, part, batch_size, seed, self.device, workers, self.processes)

    def shown(self, part: str) -> tuple[int, Iterator[tuple[Tensor, Tensor]]]:
        """See `DeviceData`."""
        count, size = self.dataset.sizes[part], self.batch_size // self.processes.count
        own = torch.arange(count)[self.processes.every]
        batches = self.dataset.batches(part, size, order=own, seed=0, workers=self.workers, whole_batches=False)
        normalise, device = self.train.normalise, self.device
        return count, ((normalise(images.to(device)), labels.to(device)) for images, labels in batches)
