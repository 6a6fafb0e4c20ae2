"""Functions and gradient noise that meet the assumptions of Section 5.1, with constants known exactly.

(A1) f is L-smooth; (A2) the PL condition, ||grad f||^2 / 2 >= mu (f - f*); (A3) E v = grad f and
E||v - grad f||^2 <= kappa ||grad f||^2 + sigma.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from mlrsnet_lab import checks


@dataclass(frozen=True)
class Problem:
    """A function of a vector, the sum of one term for every coordinate, with infimum f* = 0.

    eigenvalues: lambda_i, the curvature of each coordinate at the minimum 0, which is the largest it has anywhere.
    """

    eigenvalues: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.eigenvalues:
            raise ValueError("eigenvalues must hold at least one number > 0, got none: pass one for every dimension")
        for value in self.eigenvalues:
            checks.positive("eigenvalues", value, "every direction must curve upwards at the minimum")

    @classmethod
    def spaced(cls, dimension: int, condition_number: float, smoothness: float = 1.0) -> Self:
        """Eigenvalues in geometric steps from L down to L / condition_number (all are L for dimension 1)."""
        checks.whole_number("dimension", dimension)
        checks.positive("smoothness", smoothness, "L, the largest eigenvalue")
        if checks.real("condition_number", condition_number) < 1:
            raise ValueError(f"condition_number must be >= 1, got {condition_number!r}: it is L / mu")
        return cls(tuple(smoothness * condition_number ** -(i / max(1, dimension - 1)) for i in range(dimension)))

    @property
    def smoothness(self) -> float:
        """L = max lambda (A1)."""
        return max(self.eigenvalues)

    def loss(self, w: Tensor) -> Tensor:
        """f(w), over the last dimension."""
        raise NotImplementedError

    def gradient(self, w: Tensor) -> Tensor:
        """grad f(w)."""
        raise NotImplementedError


class Quadratic(Problem):
    """f(w) = 1/2 sum_i lambda_i w_i^2: L = max lambda (A1), mu = min lambda (A2).

    >>> Quadratic.spaced(3, condition_number=4.0).eigenvalues
    (1.0, 0.5, 0.25)
    """

    @classmethod
    def slow(cls, dimension: int, total_lr: float) -> Self:
        """L = 1, and a last direction so flat that LRs of this sum leave the largest squared gradient there.

        From a given loss lambda w^2 / 2 in it SGD goes to about w exp(-lambda S), S = sum_t alpha_t, and the squared gradient
        lambda^2 w^2 exp(-2 lambda S) is largest for lambda = 1 / (2 S). Without noise no fixed quadratic stays at Theorem 2's rate
        for all horizons; this one is made for each.
        """
        checks.whole_number("dimension", dimension)
        return cls((1.0,) * (dimension - 1) + (min(1.0, 0.5 / checks.positive("total_lr", total_lr)),))

    @property
    def pl_constant(self) -> float:
        """mu = min lambda (A2)."""
        return min(self.eigenvalues)

    def loss(self, w: Tensor) -> Tensor:
        """f(w), over the last dimension."""
        return (w.new_tensor(self.eigenvalues) * w**2).sum(-1) / 2

    def gradient(self, w: Tensor) -> Tensor:
        """grad f(w) = lambda w."""
        return w.new_tensor(self.eigenvalues) * w


class Waves(Problem):
    """f(w) = sum_i lambda_i (1 - cos w_i): L = max lambda (A1), not convex, and without the PL condition.

    Where w_i = pi the gradient is 0 but f > f*, so (A2) fails for every mu > 0.
    """

    def loss(self, w: Tensor) -> Tensor:
        """f(w), over the last dimension."""
        return (w.new_tensor(self.eigenvalues) * (1 - torch.cos(w))).sum(-1)

    def gradient(self, w: Tensor) -> Tensor:
        """grad f(w) = lambda sin w."""
        return w.new_tensor(self.eigenvalues) * torch.sin(w)


@dataclass(frozen=True)
class Noise:
    """(A3) with equality in every draw: v = g + sqrt(kappa ||g||^2 + sigma) u, u uniform on the unit sphere.

    relative: kappa. absolute: sigma, which is a variance. The paper asks for > 0; the proofs also hold at 0.
    """

    relative: float = 0.0
    absolute: float = 0.0

    def __post_init__(self) -> None:
        checks.not_negative("relative noise", self.relative)
        checks.not_negative("absolute noise", self.absolute)

    def around(self, gradient: Tensor, generator: torch.Generator) -> Tensor:
        """v, an unbiased estimate of the gradient: one draw for every leading index."""
        u = torch.randn(gradient.shape, generator=generator, dtype=gradient.dtype)
        u = u / u.norm(dim=-1, keepdim=True)
        return gradient + (self.relative * gradient.square().sum(-1, keepdim=True) + self.absolute).sqrt() * u
