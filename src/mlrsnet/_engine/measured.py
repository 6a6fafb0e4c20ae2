"""The measured range: alpha_t = r_t c(m) rho_t. The size of a step comes from the steps that the optimizer really took.

    rho_t = 1 / sqrt(mean of x_s over the steps s < t),    x_s = (length of step s at an LR of 1 / length of the weights)^2

The mean is exponential, over the last 10 % of the training. r_t is what the schedule's network says, and c(m) is
`gamma.momentum_scale`. `meter` measures the lengths; here are the equations, on Python numbers and on tensors.

The step of plain SGD is known before it is taken: it is the gradient. So it is never longer than r_t says, rho_t <= 1 / sqrt(x_t).
Where gradients grow with the error, a step by the average alone can be many times as long, and the next one longer still.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.linalg import vector_norm

WINDOW = 0.1
"""Of the training: a window in steps would mean something else in short and in long trainings."""

UNMEASURED = (
    "no step of the optimizer could be measured so far, so the schedule's measured range is a cautious guess: call step(loss) "
    "before every optimizer.step(), on the optimizer that LearnedLR was given"
)
PATIENCE = 10
"""Losses without a measured step before a user hears of it. An AMP scaler skips the first few steps."""


def relative_square(moved: Any, lengths: Any, counts: Any) -> Any:
    """x = sum k_l |D_l|^2 / sum k_l |w_l|^2, from (L,) lengths of steps, lengths of weights and sqrt(k_l): tensors or arrays."""
    moved, lengths = moved * counts, lengths * counts
    return (moved * moved).sum() / (lengths * lengths).sum()


def allowed_share(x: Any, ratio: Any) -> Any:
    """1 / (rho sqrt(x)): below 1, the share of its length that a step may have whose square x is known before it is taken.

    >>> allowed_share(4.0, 1.0), allowed_share(1.0, 0.5)
    (0.5, 2.0)
    """
    return 1 / (ratio * x**0.5)


def shortest_length(shape: Sequence[int]) -> float:
    """|w| of a matrix counts at least this: the length of torch's own initialisation, std 1 / sqrt(3 fan_in).

    Without it, weights that begin at 0 would never leave it, and those that begin small would take too short steps.

    >>> shortest_length((12, 100)), shortest_length((12, 3, 5, 5)), shortest_length((12,))
    (2.0, 2.0, 2.0)
    """
    return math.sqrt((shape[0] if len(shape) else 1) / 3)


LONGEST = 3.0
"""|w| of a matrix begins as at most this many times its `shortest_length`, or torch's embeddings would outweigh all others."""


def count(shape: Sequence[int]) -> float:
    """sqrt(k), with k = min(m, n) / m for m rows of n numbers: a matrix counts as if it were square.

    An embedding of many rows has a length that has nothing to do with the size of steps that the network wants.

    >>> count((100, 25)), count((25, 100)), count((7,))
    (0.5, 1.0, 1.0)
    """
    columns = math.prod(shape[1:]) if len(shape) > 1 else shape[0] if len(shape) else 1
    return math.sqrt(min(1.0, columns / max(1, shape[0] if len(shape) else 1)))


def fresh_part(total_steps: int, steps: int = 1) -> float:
    """1 - keep, with keep = exp(-1 / (0.1 T)): what a new step counts in the mean; or one that stands for several.

    >>> round(fresh_part(1000), 6)
    0.00995
    """
    return -math.expm1(-steps / (WINDOW * total_steps))


ALWAYS, EVERY = 64, 4
"""With a float LR, the first steps are all measured, then one in four: a mean over a tenth of the training needs no more."""


def is_due(step: int) -> bool:
    """Whether a step, counted from 1, is measured with a float LR.

    >>> [step for step in range(60, 80) if is_due(step)]
    [60, 61, 62, 63, 64, 68, 72, 76]
    """
    return step <= ALWAYS or step % EVERY == 0


def first_ratio(lengths: Tensor, gradients: Tensor, root_size: float) -> Tensor:
    """rho_0 = |w| / max(|g|, sqrt(n)), before any step was measured.

    It is small enough where a step is the gradient, as in SGD, and where every weight moves by at most 1, as in Adam. A
    gradient that is not finite counts as 0: a step with it is skipped, or lost anyway.

    >>> float(first_ratio(torch.tensor([3.0, 4.0]), torch.tensor([10.0]), 2.0))
    0.5
    """
    size = torch.nan_to_num(vector_norm(gradients), nan=0.0, posinf=0.0)
    return vector_norm(lengths) / size.clamp(min=root_size)


def wide(device: torch.device) -> torch.dtype:
    """The type of numbers that are squared and averaged."""
    return torch.float32 if device.type == "mps" else torch.float64


class HostMean:
    """n <- keep n + (1 - keep) x, weight <- keep weight + (1 - keep). The mean is n / weight, which has no bias at the start.

    >>> mean = HostMean(100)
    >>> for x in (4.0, math.nan, 0.0, 4.0):
    ...     _ = mean.add(x)
    >>> round(mean.ratio, 12)
    0.5
    """

    def __init__(self, total_steps: int) -> None:
        self.sum = self.weight = 0.0
        self.extend(total_steps)

    def add(self, x: float, steps: int = 1) -> bool:
        """Count a step, or several. One that moved nothing or is not finite changes nothing; says whether it counted."""
        if not 0 < x < math.inf:
            return False
        fresh = self.fresh if steps == 1 else fresh_part(self.total_steps, steps)
        self.sum += fresh * (x - self.sum)
        self.weight += fresh * (1 - self.weight)
        return True

    @property
    def ratio(self) -> float:
        """rho; something must have been measured."""
        return math.sqrt(self.weight / self.sum)

    def extend(self, total_steps: int) -> None:
        """Set the window for a training of this many steps."""
        self.total_steps, self.fresh = total_steps, fresh_part(total_steps)

    def rescale(self, factor: float) -> None:
        """Multiply the mean."""
        self.sum *= factor

    def numbers(self) -> tuple[float, float]:
        """n and weight."""
        return self.sum, self.weight

    def restore(self, numbers: tuple[float, float]) -> None:
        """Continue from `numbers`."""
        self.sum, self.weight = numbers


class DeviceMean:
    """`HostMean` of tensors that are written in place: nothing is read back, and a CUDA graph can hold it."""

    def __init__(self, total_steps: int, device: torch.device) -> None:
        self.pair = torch.zeros(2, dtype=wide(device), device=device)
        self.fresh = torch.zeros((), dtype=wide(device), device=device)
        self.extend(total_steps)

    def add(self, x: Tensor, ratio: Tensor, *, doubles: bool = False) -> None:
        """Count a step, and set `ratio` to rho. With `doubles`, one that moved nothing doubles a first ratio."""
        new = self.pair.lerp(torch.stack((x, x / x)), self.fresh)  # x / x is 1, or NaN for 0, infinity and NaN
        counts = new[1] == new[1]
        if doubles:
            ratio.mul_(1 + ((x == 0) & (self.pair[1] == 0)))
        ratio.copy_(torch.where(counts, (new[1] / new[0]).sqrt(), ratio))
        torch.where(counts, new, self.pair, out=self.pair)

    def begin(self, first: Tensor, ratio: Tensor) -> None:
        """Set `ratio` to a first one if nothing has been measured yet."""
        ratio.copy_(torch.where(self.pair[1] > 0, ratio, first))

    def extend(self, total_steps: int) -> None:
        """See `HostMean`; in place."""
        self.fresh.fill_(fresh_part(total_steps))

    def rescale(self, factor: float) -> None:
        """See `HostMean`; in place."""
        self.pair[0] *= factor

    def numbers(self) -> tuple[float, float]:
        """See `HostMean`; waits for the device."""
        total, weight = self.pair.tolist()
        return total, weight

    def restore(self, numbers: tuple[float, float]) -> None:
        """See `HostMean`; in place."""
        self.pair.copy_(torch.tensor(numbers, dtype=torch.float64))
