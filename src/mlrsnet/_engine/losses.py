"""The loss of a step: checked, averaged over micro-batches, and over ranks."""

from numbers import Integral

import torch
from torch import Tensor

from mlrsnet._engine.ranks import Group, average_over_ranks, check_group

NOT_A_LOSS = (
    "loss must be a float or a scalar tensor of floats, got {}: pass the loss of this batch, not the number of an epoch or of a "
    "step, which other schedulers take; if it is your loss, pass float(loss)"
)


class Losses:
    """Losses of micro-batches that wait for their optimizer step."""

    def __init__(self, process_group: Group = None) -> None:
        check_group(process_group)
        self.process_group = process_group
        self.pending: list[float | Tensor] = []

    def observe(self, loss: float | Tensor) -> None:
        """Keep the loss of a micro-batch; a tensor is copied, since its owner may reuse it."""
        loss = as_scalar(loss)
        self.pending.append(_wide(loss) if isinstance(loss, Tensor) else loss)

    def discard(self) -> None:
        """Drop what was observed."""
        self.pending = []

    def collect(self, loss: float | Tensor | None) -> float | Tensor | None:
        """The mean of `loss` and what was observed, over all ranks; None if there is neither. Uses up what was observed."""
        if loss is not None:
            loss = as_scalar(loss)
        if self.pending:
            loss = _mean(self.pending if loss is None else [*self.pending, loss])
            self.discard()
        return None if loss is None else average_over_ranks(loss, self.process_group)


def as_scalar(loss: float | Tensor, *, allow_whole: bool = False) -> float | Tensor:
    """A float, or a detached tensor without dimensions. A whole number is more likely to count something, unless it is allowed."""
    if isinstance(loss, Tensor):
        if loss.numel() != 1:
            raise ValueError(f"loss must be a scalar, got shape {tuple(loss.shape)}: pass loss.mean()")
        if not (loss.is_floating_point() or allow_whole):
            raise TypeError(NOT_A_LOSS.format(f"a tensor of {loss.dtype}"))
        return loss.detach().reshape(())
    if _is_whole(loss) and not allow_whole:
        raise TypeError(NOT_A_LOSS.format(repr(loss)))
    try:
        if not isinstance(loss, str):
            return float(loss)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"loss must be a number or a scalar tensor, got {type(loss).__name__}: pass loss or loss.item()")


def _is_whole(loss: object) -> bool:
    """Whether it is a whole number or a truth value, Python's or numpy's."""
    return isinstance(loss, Integral) or getattr(getattr(loss, "dtype", None), "kind", "f") in "iub"


def is_captured(loss: float | Tensor) -> bool:
    """Whether a CUDA graph is being captured, so that the loss cannot be read."""
    return isinstance(loss, Tensor) and loss.is_cuda and torch.cuda.is_current_stream_capturing()


def _wide(loss: Tensor) -> Tensor:
    """A copy in a type wide enough to add up many losses."""
    return loss.to(torch.float32 if loss.device.type == "mps" else torch.float64, copy=True)


def _mean(losses: list[float | Tensor]) -> float | Tensor:
    total: float | Tensor = 0.0
    for loss in losses:
        total = total + (_wide(loss) if isinstance(loss, Tensor) else loss)
    return total / len(losses)
