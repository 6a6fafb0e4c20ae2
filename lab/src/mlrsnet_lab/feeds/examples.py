"""Rows of numbers or pieces of text on the device, in random batches, with a class or with numbers to predict.

loss: mean cross-entropy, or the mean squared error of target / scale. metric: accuracy, or RMSE = scale sqrt(loss).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from mlrsnet_lab.datasets import ExampleDataset, Examples
from mlrsnet_lab.feeds.base import ACCURACY, Metric, Score, ShuffledFeed, rmse, val_batch
from mlrsnet_lab.feeds.pictures import score, sums
from mlrsnet_lab.processes import ALONE, Processes

EVAL_BATCH = 2000
SOME = slice(5000)
"""The training examples that `evaluate("train")` uses."""


class ExampleFeed(ShuffledFeed):
    """Random batches of one part."""

    def __init__(
        self,
        examples: Examples,
        part: str,
        batch_size: int,
        seed: int,
        device: torch.device,
        processes: Processes = ALONE,
    ) -> None:
        super().__init__(part, len(examples), "examples", batch_size, seed, device, processes)
        self.inputs, self.targets = examples.inputs.to(device), examples.targets.to(device)

    def loss(self, model: nn.Module) -> Tensor:
        """See `Feed`."""
        chosen = self.order.index_select(0, self.cursor + self.in_batch)
        self.cursor += self.batch_size
        answer, targets = model(self.inputs.index_select(0, chosen)), self.targets.index_select(0, chosen)
        return mse_loss(answer.float(), targets) if targets.is_floating_point() else cross_entropy(answer, targets)


class ExampleData:
    """Examples on a device. Evaluation of `train` uses some of them."""

    def __init__(
        self, dataset: ExampleDataset, batch_size: int, seed: int, device: torch.device, processes: Processes = ALONE
    ) -> None:
        self.dataset, self.batch_size, self.seed, self.device = dataset, batch_size, seed, device
        self.processes = processes
        self.train = ExampleFeed(dataset.train, "train", batch_size, seed, device, processes)
        size = val_batch(batch_size, len(dataset.val), processes)
        self.val = ExampleFeed(dataset.val, "val", size, seed + 2**32, device, processes)

    @property
    def metric(self) -> Metric:
        """See `DeviceData`."""
        return rmse(self.dataset.unit) if self.dataset.num_classes is None else ACCURACY

    def calibration(self) -> ExampleFeed:
        """See `DeviceData`."""
        return ExampleFeed(self.dataset.train, "train", self.batch_size, self.seed + 2**33, self.device, self.processes)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, part: str) -> Score:
        """See `DeviceData`. Sums stay on the device until the end."""
        examples: Examples = self.dataset.train[SOME] if part == "train" else getattr(self.dataset, part)
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        own = examples[self.processes.every]
        for inputs, targets in zip(own.inputs.split(EVAL_BATCH), own.targets.split(EVAL_BATCH), strict=True):
            total += _sums(model(inputs.to(self.device)), targets.to(self.device))
        total = self.processes.total(total)
        if self.dataset.num_classes is not None:
            return score(total, len(examples))
        loss = float(total[0]) / examples.targets.numel()
        return Score(loss, self.dataset.scale * math.sqrt(loss))


def _sums(answer: Tensor, targets: Tensor) -> Tensor:
    """Summed squares, and nothing; for classes as for pictures."""
    if not targets.is_floating_point():
        return sums(answer, targets)
    squares = (answer.double() - targets).square().sum()
    return torch.stack((squares, torch.zeros_like(squares)))
