"""What the loop needs of data."""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn


class Score(NamedTuple):
    """Mean cross-entropy and accuracy in percent, over a whole part."""

    loss: float
    accuracy: float


class Feed(Protocol):
    """Batches without end, in an order that depends on a seed and the position alone."""

    steps: int

    def prepare(self) -> None:
        """Before every batch, on the host: shuffle when an epoch begins, fetch what is not on the device."""

    def loss(self, model: nn.Module) -> Tensor:
        """The mean loss of the next batch; touches the device only, so that a CUDA graph can hold it."""

    def state_dict(self) -> dict[str, Any]:
        """The position, and what a sequence carries from batch to batch."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""


class Data(Protocol):
    """One task on one device."""

    @property
    def train(self) -> Feed:
        """To train on."""

    @property
    def val(self) -> Feed:
        """Held out, for methods that learn from it."""

    def calibration(self) -> Feed:
        """Training batches in an order of their own, for statistics that are taken beside the training."""

    def evaluate(self, model: nn.Module, part: str) -> Score:
        """A model in evaluation mode on all of `val` or `test`; of `train`, some will do."""


def require_batch(part: str, batches: int, batch_size: int, available: str) -> None:
    """Refuse a part that has not one full batch."""
    if batches < 1:
        raise ValueError(
            f"batch_size must leave at least one full batch of the {part} data ({available}), got {batch_size}"
        )


def shuffled(count: int, seed: int, epoch: int) -> tuple[Tensor, torch.Generator]:
    """An order for an epoch, the same on every device, and the generator for what else is random in it."""
    number = seed * 1_000_003 + epoch
    generator = torch.Generator().manual_seed((number ^ number >> 32) % 2**32)  # torch looks at the last 32 bits only
    return torch.randperm(count, generator=generator), generator
