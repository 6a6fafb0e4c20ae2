"""Where and in which number format trainings run."""

from dataclasses import dataclass

import torch

from mlrsnet_lab import checks

CPU = torch.device("cpu")
PRECISIONS = ("fp32", "fp64")


@dataclass(frozen=True)
class Compute:
    """Where and how trainings run.

    Args:
        device: to train on, or its name.
        precision: `fp32` or `fp64`.
        capture: capture the step in a CUDA graph. Must be False for models that copy from the host or decide on the host in their
            forward pass.

    >>> Compute("cpu", "fp64").dtype
    torch.float64
    """

    device: torch.device = CPU
    precision: str = "fp32"
    capture: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", torch.device(self.device))
        checks.one_of("precision", self.precision, PRECISIONS)

    @property
    def dtype(self) -> torch.dtype:
        """Of weights, losses, LRs and optimizer state."""
        return torch.float64 if self.precision == "fp64" else torch.float32
