"""Examples that tasks draw their training and held-out sets from: classes to tell apart, or numbers to predict."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mlrsnet_lab import checks


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs and the classes or numbers to predict from them.

    Args:
        inputs: (N, ...) tensor or array of examples: floats, or whole numbers for text.
        targets: (N,) classes, or (N, L) with one class per position for sequences. Floats, (N,) or (N, K), are numbers to
            predict; the loss is then the mean squared error.
        num_classes: if 0, the largest target plus one. For numbers it is K.
        name: appears in the schedule's card.
        mirrored: for pictures whose mirror image has the same class. Each is then mirrored half of the time.
        dtype: of floating-point inputs, `torch.float32` or `torch.float64`; others are converted.

    >>> Data(torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])).num_classes
    3
    >>> Data(torch.randn(6, 3), torch.randn(6, 2)).is_regression
    True
    """

    inputs: Tensor = field(repr=False)
    targets: Tensor = field(repr=False)
    num_classes: int = 0
    name: str = "data"
    mirrored: bool = False
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        inputs, targets = _tensor("inputs", self.inputs), _tensor("targets", self.targets)
        if len(inputs) != len(targets) or not len(inputs):
            raise ValueError(
                f"inputs and targets must have the same length, at least 1; got {len(inputs)} and {len(targets)}"
            )
        inputs = _checked_inputs(inputs, self.dtype)
        if targets.is_floating_point():
            targets, outputs = _numbers(targets, self.num_classes, self.dtype)
        else:
            targets, outputs = _classes(targets, self.num_classes)
        for name, value in {"inputs": inputs, "targets": targets, "num_classes": outputs}.items():
            object.__setattr__(self, name, value)

    @property
    def is_regression(self) -> bool:
        """Whether the targets are numbers, not classes."""
        return self.targets.is_floating_point()

    @property
    def is_sequence(self) -> bool:
        """Whether there is one class per position."""
        return self.targets.ndim > 1 and not self.is_regression

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Data":
        """On a device, its inputs in another floating-point type if one is given; this one if it is there already."""
        inputs, targets = self.inputs.to(device), self.targets.to(device)
        if inputs is self.inputs and dtype in (None, self.dtype):
            return self
        return Data(inputs, targets, self.num_classes, self.name, self.mirrored, dtype or self.dtype)


def _tensor(name: str, values: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        tensor = torch.empty(())
    if not tensor.ndim:
        raise ValueError(
            f"{name} must be a tensor or an array of examples, got {type(values).__name__}: pass numbers only"
        )
    return tensor


def _classes(targets: Tensor, given: int) -> tuple[Tensor, int]:
    """Targets, and how many classes there are."""
    smallest, largest = int(targets.min()), int(targets.max())
    if smallest < 0:
        raise ValueError(f"targets must be classes, whole numbers from 0, or floats to predict, got {smallest}")
    number = checks.whole_number("num_classes", given or largest + 1, 2)
    if number <= largest:
        raise ValueError(f"num_classes must be above the largest target {largest}, got {number}")
    return targets.long(), number


def _numbers(targets: Tensor, given: int, dtype: torch.dtype) -> tuple[Tensor, int]:
    """Targets (N, K), and K."""
    if targets.ndim > 2 or not torch.isfinite(targets).all():
        raise ValueError(
            f"targets that are floats must be finite and of shape (N,) or (N, K), got {tuple(targets.shape)}: flatten them, "
            "clean the data; classes must be whole numbers"
        )
    flat = targets.to(dtype).reshape(len(targets), -1)
    if given not in (0, flat.shape[1]):
        raise ValueError(
            f"num_classes must be left out for numbers to predict, got {given} for {flat.shape[1]} of them"
        )
    return flat, flat.shape[1]


def _checked_inputs(inputs: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
    if inputs.dtype == torch.uint8:
        raise ValueError("inputs must be floats, or long integers for text, got uint8: normalise pictures first")
    if not inputs.is_floating_point():
        return inputs
    if not torch.isfinite(inputs).all():
        raise ValueError("inputs must be finite, got NaN or infinite values: clean the data first")
    return inputs.to(dtype)
