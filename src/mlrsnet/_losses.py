"""Losses as users pass them."""

from numbers import Integral

import torch
from torch import Tensor

NOT_A_LOSS = (
    "loss must be a float or a scalar tensor of floats, got {}: pass the loss of this batch, not the number of an epoch or of a "
    "step, which other schedulers take; if it is your loss, pass float(loss)"
)


def as_scalar(loss: float | Tensor, *, allow_whole: bool = False) -> float | Tensor:
    """A float, or a detached tensor without dimensions. A whole number is more likely to count something, unless it is allowed."""
    if isinstance(loss, Tensor):
        if loss.numel() != 1:
            raise ValueError(f"loss must be a scalar, got shape {tuple(loss.shape)}: pass loss.mean()")
        if not (loss.is_floating_point() or allow_whole):
            raise TypeError(NOT_A_LOSS.format(f"a tensor of {loss.dtype}"))
        return loss.detach().reshape(())
    if type(loss) is float:
        return loss
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


def wide(loss: Tensor) -> Tensor:
    """A copy in a type wide enough to add up many losses."""
    return loss.to(torch.float32 if loss.device.type == "mps" else torch.float64, copy=True)


def mean(losses: list[float | Tensor]) -> float | Tensor:
    """Of several losses, in double precision."""
    total: float | Tensor = 0.0
    for loss in losses:
        total = total + (wide(loss) if isinstance(loss, Tensor) else loss)
    return total / len(losses)
