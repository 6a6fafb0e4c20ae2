"""Rows of numbers or pieces of text on the device, in random batches, with a class or with numbers to predict.

loss: mean cross-entropy, or the mean squared error of target / scale. metric: accuracy, or RMSE = scale sqrt(loss).
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from mlrsnet_lab.datasets import Examples
from mlrsnet_lab.feeds.base import ACCURACY, DeviceData, Metric, Score, ShuffledFeed, rmse
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


class ExampleData(DeviceData):
    """Examples on a device. Evaluation of `train` uses some of them."""

    @property
    def predicts_numbers(self) -> bool:
        """Whether there are no classes."""
        return self.dataset.num_classes is None

    @property
    def metric(self) -> Metric:
        """See `DeviceData`."""
        return rmse(self.dataset.unit) if self.predicts_numbers else ACCURACY

    def feed(self, part: str, batch_size: int, seed: int) -> ExampleFeed:
        """See `DeviceData`."""
        return ExampleFeed(getattr(self.dataset, part), part, batch_size, seed, self.device, self.processes)

    def shown(self, part: str) -> tuple[int, Iterator[tuple[Tensor, Tensor]]]:
        """See `DeviceData`."""
        whole: Examples = self.dataset.train[SOME] if part == "train" else getattr(self.dataset, part)
        own = whole[self.processes.every]
        inputs, targets = (kept.to(self.device).split(EVAL_BATCH) for kept in (own.inputs, own.targets))
        return whole.targets.numel() if self.predicts_numbers else len(whole), zip(inputs, targets, strict=True)

    def sums(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Summed squares, and nothing; for classes as for pictures."""
        if not self.predicts_numbers:
            return super().sums(logits, labels)
        squares = (logits.double() - labels).square().sum()
        return torch.stack((squares, torch.zeros_like(squares)))

    def score(self, total: Tensor, count: int) -> Score:
        """See `DeviceData`."""
        if not self.predicts_numbers:
            return super().score(total, count)
        loss = float(total[0]) / count
        return Score(loss, self.dataset.scale * math.sqrt(loss))
