"""Pictures that stay on disk. Worker processes read them, one batch ahead of the training."""

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mlrsnet_lab.datasets import ImageFolder
from mlrsnet_lab.feeds.base import ACCURACY, Score, require_batch, shuffled, val_batch
from mlrsnet_lab.feeds.pictures import Normalise, score, sums
from mlrsnet_lab.processes import ALONE, Processes


class StreamedFeed:
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
        self.position = 0

    def prepare(self) -> None:
        """See `Feed`."""
        if self.batches is None or self.position % self.steps == 0:
            epoch, within = divmod(self.position, self.steps)
            order = shuffled(self.count, self.seed, epoch)[0][within * self.batch_size : self.steps * self.batch_size]
            own = order.view(-1, self.batch_size)[:, self.share].flatten()
            self.batches = self.dataset.batches(
                self.part, self.own_size, order=own, seed=self.seed * 100_003 + epoch, workers=self.workers
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

    def __init__(
        self, dataset: ImageFolder, batch_size: int, seed: int, device: torch.device, processes: Processes = ALONE
    ) -> None:
        self.dataset, self.batch_size, self.seed, self.device = dataset, batch_size, seed, device
        self.processes = processes
        self.workers = max(1, min(8, (os.cpu_count() or 1) // processes.on_machine))
        self.train = StreamedFeed(dataset, "train", batch_size, seed, device, self.workers, processes)
        size = val_batch(batch_size, dataset.sizes["val"], processes)
        self.val = StreamedFeed(dataset, "val", size, seed + 2**32, device, 1, processes)

    def calibration(self) -> StreamedFeed:
        """See `DeviceData`."""
        return StreamedFeed(
            self.dataset, "train", self.batch_size, self.seed + 2**33, self.device, self.workers, self.processes
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, part: str) -> Score:
        """See `DeviceData`."""
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        own = torch.arange(self.dataset.sizes[part])[self.processes.every]
        size = self.batch_size // self.processes.count
        for images, labels in self.dataset.batches(
            part, size, order=own, seed=0, workers=self.workers, whole_batches=False
        ):
            total += sums(model(self.train.normalise(images.to(self.device))), labels.to(self.device))
        return score(self.processes.total(total), self.dataset.sizes[part])
