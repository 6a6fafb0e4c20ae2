"""Plain SGD on a problem, many runs at once: the left sides of Theorems 1 and 2."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlrsnet_lab import checks
from mlrsnet_lab.theory.problems import Noise, Problem


@dataclass(frozen=True)
class Simulation:
    """Means over the runs: f(w_t) - f* for t = 1..T+1, ||grad f(w_t)||^2 for t = 1..T; and the LRs alpha_1..alpha_T."""

    gap: Tensor
    squared_gradient: Tensor
    lrs: Tensor

    @property
    def least_squared_gradient(self) -> float:
        """min_t E||grad f(w_t)||^2, the left side of Theorem 2."""
        return float(self.squared_gradient.min())

    @property
    def weighted_squared_gradient(self) -> float:
        """sum_t alpha_t E||grad f(w_t)||^2 / sum_t alpha_t: at least the minimum, and what the proof really bounds."""
        return float((self.lrs * self.squared_gradient).sum() / self.lrs.sum())


def simulate(
    problem: Problem, lrs: Tensor, noise: Noise, *, start: float | Sequence[float] = 1.0, runs: int = 512, seed: int = 0
) -> Simulation:
    """w_{t+1} = w_t - alpha_t v_t from w_1 = start, one number for all coordinates or one each; `runs` at once, in float64.

    >>> from mlrsnet_lab.theory import Quadratic
    >>> simulate(Quadratic((1.0,)), torch.tensor([0.5, 0.5]), Noise(), runs=1).gap.tolist()
    [0.5, 0.125, 0.03125]
    """
    checks.whole_number("runs", runs)
    generator = torch.Generator().manual_seed(seed)
    first = [checks.real("start", number) for number in (start if isinstance(start, Sequence) else [start])]
    w = torch.tensor(first, dtype=torch.float64).expand(runs, len(problem.eigenvalues))
    gaps, squares = [problem.loss(w).mean()], []
    for alpha in lrs.tolist():
        gradient = problem.gradient(w)
        squares.append(gradient.square().sum(-1).mean())
        w = w - alpha * noise.around(gradient, generator)
        gaps.append(problem.loss(w).mean())
    return Simulation(torch.stack(gaps), torch.stack(squares), lrs)
