"""Rows of numbers or pieces of text on the device, in random batches, with a class or with numbers to predict.

loss: mean cross-entropy, or the mean squared error of target / scale. metric: accuracy, or RMSE = scale sqrt(loss).
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from mlrsnet_lab.datasets import ExampleDataset, Examples
from mlrsnet_lab.feeds.base import ACCURACY, Metric, Score, require_batch, rmse, shuffled, val_batch
from mlrsnet_lab.feeds.pictures import score, sums
from mlrsnet_lab.processes import ALONE, Processes

EVAL_BATCH = 2000
SOME = slice(5000)
"""The training examples that `evaluate("train")` uses."""


class ExampleFeed:
    """Random batches of one part. The order of an epoch is drawn at its start; a cursor on the device moves through it."""

    def __init__(
        self,
        examples: Examples,
        part: str,
        batch_size: int,
        seed: int,
        device: torch.device,
        processes: Processes = ALONE,
    ) -> None:
        self.count, self.batch_size, self.seed = len(examples), batch_size, seed
        self.steps = self.count // batch_size
        require_batch(part, self.steps, batch_size, f"{self.count} examples")
        self.inputs, self.targets = examples.inputs.to(device), examples.targets.to(device)
        self.order = torch.zeros(self.count, dtype=torch.int64, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self.in_batch = torch.arange(batch_size, device=device)[processes.share(batch_size)]
        self.position = 0

    def prepare(self) -> None:
        """See `Feed`."""
        if self.position % self.steps == 0:
            self._plan(self.position // self.steps)
            self.cursor.zero_()
        self.position += 1

    def loss(self, model: nn.Module) -> Tensor:
        """See `Feed`."""
        chosen = self.order.index_select(0, self.cursor + self.in_batch)
        self.cursor += self.batch_size
        answer, targets = model(self.inputs.index_select(0, chosen)), self.targets.index_select(0, chosen)
        return mse_loss(answer.float(), targets) if targets.is_floating_point() else cross_entropy(answer, targets)

    def state_dict(self) -> dict[str, Any]:
        """See `Feed`."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Feed`."""
        self.position = state["position"]
        within = self.position % self.steps
        if within:
            self._plan(self.position // self.steps)
            self.cursor.fill_(within * self.batch_size)

    def _plan(self, epoch: int) -> None:
        self.order.copy_(shuffled(self.count, self.seed, epoch)[0])


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
