"""What the loop needs from data."""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from mlrsnet_lab.processes import Processes


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


class Feed(Protocol):
    """An endless stream of batches. Their order depends only on a seed and the position.

    With several processes, each has its share of every batch.
    """

    steps: int

    def prepare(self) -> None:
        """Call before every batch, on the host: shuffles at the start of an epoch, fetches what is not on the device."""

    def loss(self, model: nn.Module) -> Tensor:
        """The mean loss of the next batch. Uses the device only, so that a CUDA graph can capture it."""

    def state_dict(self) -> dict[str, Any]:
        """The position, and the memory that text carries from batch to batch."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""


class DeviceData(Protocol):
    """A dataset on a device. Its feeds know the loss, and `evaluate` the metric."""

    @property
    def metric(self) -> Metric:
        """What `evaluate` measures beside the loss."""

    @property
    def train(self) -> Feed:
        """Training batches."""

    @property
    def val(self) -> Feed:
        """Held-out batches, for methods that learn from them."""

    def calibration(self) -> Feed:
        """Training batches in another order, for statistics that must not disturb the training."""

    def evaluate(self, model: nn.Module, part: str) -> Score:
        """Score a model in evaluation mode on all of `val` or `test`, or on a part of `train`."""


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


class ShuffledFeed:
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
        self.position = 0

    def prepare(self) -> None:
        """See `Feed`."""
        if self.position % self.steps == 0:
            self._plan(self.position // self.steps)
            self.cursor.zero_()
        self.position += 1

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

    def _plan(self, epoch: int) -> torch.Generator:
        """Draw an epoch; returns the generator for its other random numbers."""
        order, generator = shuffled(self.count, self.seed, epoch)
        self.order.copy_(order)
        return generator
