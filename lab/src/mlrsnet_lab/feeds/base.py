"""What the loop needs from data."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mlrsnet_lab.processes import ALONE, Processes


class Score(NamedTuple):
    """Mean loss over a part of the data, and what its records report: see `DeviceData.metric`."""

    loss: float
    metric: float


Metric = dict[str, str]
"""As a record has it: name, unit, and whether `higher` or `lower` is better."""

ACCURACY: Metric = {"name": "accuracy", "unit": "%", "better": "higher"}
PERPLEXITY: Metric = {"name": "perplexity", "unit": "", "better": "lower"}


def rmse(unit: str) -> Metric:
    """The root of the mean squared error, in the target's unit."""
    return {"name": "RMSE", "unit": unit, "better": "lower"}


class Feed:
    """An endless stream of batches. Their order depends only on a seed and the position.

    With several processes, each has its share of every batch.
    """

    steps: int
    position = 0

    def prepare(self) -> None:
        """Call before every batch, on the host."""
        if self.position % self.steps == 0:
            self.begin(self.position // self.steps)
        self.position += 1

    def begin(self, epoch: int) -> None:
        """An epoch begins."""
        raise NotImplementedError

    def loss(self, model: nn.Module) -> Tensor:
        """The mean loss of the next batch. Uses the device only, so that a CUDA graph can capture it."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """The position, and the memory that text carries from batch to batch."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.position = state["position"]


class DeviceData:
    """A dataset on a device. Its feeds know the loss, and `evaluate` the metric.

    train: training batches. val: held-out batches, for methods that learn from them.

    Args:
        dataset: the data.
        batch_size: of all processes together.
        seed: of the order of batches.
        device: where the training is.
        processes: that train together.
    """

    def __init__(
        self, dataset: Any, batch_size: int, seed: int, device: torch.device, processes: Processes = ALONE
    ) -> None:
        self.dataset, self.batch_size, self.seed, self.device = dataset, batch_size, seed, device
        self.processes = processes
        self.train = self.feed("train", batch_size, seed)
        self.val = self.feed("val", val_batch(batch_size, dataset.sizes["val"], processes), seed + 2**32)

    @property
    def metric(self) -> Metric:
        """What `evaluate` measures beside the loss."""
        return ACCURACY

    def feed(self, part: str, batch_size: int, seed: int) -> Any:
        """Batches of a part."""
        raise NotImplementedError

    def calibration(self) -> Any:
        """Training batches in another order, for statistics that must not disturb the training."""
        return self.feed("train", self.batch_size, self.seed + 2**33)

    def shown(self, part: str) -> tuple[int, Iterator[tuple[Tensor, Tensor]]]:
        """How many answers of a part `evaluate` looks at, and this process's share: what the model reads, and the answers."""
        raise NotImplementedError

    @torch.no_grad()
    def evaluate(self, model: nn.Module, part: str) -> Score:
        """Score a model in evaluation mode on all of `val` or `test`, or on a part of `train`. Sums stay on the device."""
        count, batches = self.shown(part)
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        for inputs, targets in batches:
            total += self.sums(model(inputs), targets)
        return self.score(self.processes.total(total), count)

    def sums(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Summed cross-entropy, and the number of correct predictions."""
        logits = logits.float()
        return torch.stack((cross_entropy(logits, labels, reduction="sum"), (logits.argmax(-1) == labels).sum()))

    def score(self, total: Tensor, count: int) -> Score:
        """The score from sums over `count` answers. Reads them back from the device."""
        loss, correct = total.tolist()
        return Score(loss / count, 100 * correct / count)


def require_batch(part: str, batches: int, batch_size: int, available: str) -> None:
    """Raise if a part has not even one full batch."""
    if batches < 1:
        raise ValueError(
            f"batch_size must leave at least one full batch of the {part} data ({available}), got {batch_size}"
        )


def val_batch(batch_size: int, available: int, processes: Processes) -> int:
    """The size of a held-out batch: that of a training batch, or what there is, in equal shares."""
    size = min(batch_size, available) // processes.count * processes.count
    if available and not size:
        raise ValueError(
            f"the val data must have an example for each of {processes.count} processes, got {available}: hold out more "
            "(`--option task.val_size=N`), or start fewer processes"
        )
    return size


def shuffled(count: int, seed: int, epoch: int) -> tuple[Tensor, torch.Generator]:
    """A random order for an epoch, the same on every device, and the generator for its other random numbers."""
    number = seed * 1_000_003 + epoch
    generator = torch.Generator().manual_seed((number ^ number >> 32) % 2**32)  # torch uses the last 32 bits only
    return torch.randperm(count, generator=generator), generator


class ShuffledFeed(Feed):
    """Random batches of one part. The order of an epoch is drawn at its start; a cursor on the device moves through it.

    Args:
        part: `train` or `val`.
        count: how many examples it has, and `what` they are.
        batch_size: of all processes together.
        seed: of the order.
        device: where the order is.
    """

    def __init__(
        self,
        part: str,
        count: int,
        what: str,
        batch_size: int,
        seed: int,
        device: torch.device,
        processes: Processes,
    ) -> None:
        self.count, self.batch_size, self.seed, self.steps = count, batch_size, seed, count // batch_size
        require_batch(part, self.steps, batch_size, f"{count} {what}")
        self.order = torch.zeros(count, dtype=torch.int64, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self.in_batch = torch.arange(batch_size, device=device)[processes.share(batch_size)]

    def begin(self, epoch: int) -> None:
        """Draw the epoch's order."""
        self.plan(epoch)
        self.cursor.zero_()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Feed`."""
        super().load_state_dict(state)
        epoch, within = divmod(self.position, self.steps)
        if within:
            self.plan(epoch)
            self.cursor.fill_(within * self.batch_size)

    def plan(self, epoch: int) -> torch.Generator:
        """Draw an epoch; returns the generator for its other random numbers."""
        order, generator = shuffled(self.count, self.seed, epoch)
        self.order.copy_(order)
        return generator
