"""Laws for the size of a step, fitted to a table by regret.

The table has the whole response curve of every training, so what a size costs is known for every size:

    gap_i(log r) = log((f_i(r) + 0.05) / (b_i + 0.05)),    b_i: the best of the absolute decays on that very training

piecewise linear in log r between the columns, and rising beyond the grid. A law log r = theta . x_i is fitted by descending the
mean of gap_i(theta . x_i). It is judged on families that it was not fitted on.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mlrsnet_lab.table.columns import Sizing
from mlrsnet_lab.table.file import TrainingTable

NEAR_0, LARGEST = 0.05, 9.0
"""Keep trainings that end near a loss of 0, and those that diverge, from dominating the mean."""

SLOPE = 0.3
"""What a factor e beyond the grid costs."""

AROUND = (-0.4, -0.2, 0.0, 0.2, 0.4)
"""How far from its own size, in log r, a law is judged while it is fitted. It should not need to be exact."""

STARTS = (0.03, 0.06, 0.1, 0.17, 0.28)
"""Sizes from which a fit begins: the mean gap has several minima."""


@dataclass(frozen=True)
class Response:
    """The gaps (rows, sizes) of one structure with one pair of powers, and log r of its columns."""

    gaps: Tensor
    log_sizes: Tensor

    def at(self, log_sizes: Tensor) -> Tensor:
        """(..., rows) gap of each training at its own size; differentiable."""
        grid = self.log_sizes
        left = (torch.searchsorted(grid, log_sizes.detach().contiguous()) - 1).clamp(0, len(grid) - 2)
        share = (log_sizes - grid[left]) / (grid[left + 1] - grid[left])
        rows = torch.arange(len(self.gaps))
        low, high = self.gaps[rows, left], self.gaps[rows, left + 1]
        beyond = torch.relu(grid[0] - log_sizes) + torch.relu(log_sizes - grid[-1])
        return low + (high - low) * share.clamp(0, 1) + SLOPE * beyond

    def near(self, log_sizes: Tensor) -> Tensor:
        """(..., rows) mean gap at sizes around each training's own: without kinks that a fit would stop in."""
        around = torch.tensor(AROUND).view(-1, *[1] * log_sizes.ndim)
        return self.at(log_sizes + around).mean(0)


def gaps(table: TrainingTable) -> np.ndarray:
    """(rows, columns) log gap to the best absolute decay of each training."""
    fitness = np.minimum(np.nan_to_num(np.array(table.fitness), nan=LARGEST, posinf=LARGEST), LARGEST)
    absolute = [Sizing.parse(name).structure == "absolute" for name in table.columns]
    best = fitness[:, absolute].min(axis=1, keepdims=True)
    found: np.ndarray = np.log((fitness + NEAR_0) / (best + NEAR_0))
    return found


def responses(table: TrainingTable) -> dict[tuple[str, float, float], Response]:
    """By structure, fall and rise; only those with at least three sizes."""
    found, columns = gaps(table), [Sizing.parse(name) for name in table.columns]
    groups: dict[tuple[str, float, float], list[int]] = {}
    for place, column in enumerate(columns):
        groups.setdefault((column.structure, column.fall, column.rise), []).append(place)
    return {
        key: Response(
            torch.tensor(found[:, places], dtype=torch.float32),
            torch.tensor([math.log(columns[place].size) for place in places]),
        )
        for key, places in groups.items()
        if len(places) >= 3
    }


Known = Callable[[dict[str, Any], dict[str, Any]], float]


FEATURES: dict[str, Known] = {
    "horizon": lambda kind, facts: math.log(kind["total_steps"] / 500),
    "depth": lambda kind, facts: math.log(max(1.0, facts["depth"] / 4)),
    "trained": lambda kind, facts: float(facts["is_trained"]),
    "parameters": lambda kind, facts: math.log(facts["parameters"] / 1e4),
    "epochs": lambda kind, facts: math.log(max(1.0, facts["epochs"])),
}
"""What a law may know before the training, as logarithms that are 0 for an ordinary one."""


def features(table: TrainingTable, names: Sequence[str]) -> Tensor:
    """(rows, 1 + names): a constant and some of `FEATURES`."""
    known = list(zip(table.kinds, table.facts, strict=True))
    columns = [torch.tensor([FEATURES[name](kind, facts) for kind, facts in known]) for name in names]
    return torch.stack([torch.ones(len(table)), *columns], dim=1)


def fit(x: Tensor, response: Response, *, shrink: float = 1e-3) -> Tensor:
    """theta of the law log r = theta . x with the smallest mean gap; `shrink` keeps exponents from growing for nothing."""
    return _fits(x, response, torch.full((1, len(x)), 1 / len(x)), shrink)[0]


def cross_validated(x: Tensor, response: Response, families: Sequence[str]) -> Tensor:
    """(rows,) gaps, each under the law that was fitted without the training's family."""
    fold, shares = _folds(families)
    theta = _fits(x, response, shares)
    return response.at((theta[fold] * x).sum(1))


def network_cross_validated(x: Tensor, response: Response, families: Sequence[str], *, hidden: int = 16) -> Tensor:
    """(rows,) gaps under a small network instead of a power law."""
    fold, shares = _folds(families)
    mean = (shares @ x).unsqueeze(1)
    std = (shares.unsqueeze(1) @ (x - mean).square()).sqrt().clamp(min=1e-3)
    outputs = _fit_networks((x - mean) / std, response, shares, hidden)
    return response.at(outputs[fold, torch.arange(len(x))])


def _folds(families: Sequence[str]) -> tuple[Tensor, Tensor]:
    """(rows,) the family of each training, and (families, rows) the share of each training in a mean without that family."""
    names = sorted(set(families))
    fold = torch.tensor([names.index(family) for family in families])
    others = (fold != torch.arange(len(names)).unsqueeze(1)).float()
    return fold, others / others.sum(1, keepdim=True)


def _fits(x: Tensor, response: Response, shares: Tensor, shrink: float = 1e-3, steps: int = 200) -> Tensor:
    """(fits, features) theta with the smallest gap for each of these shares, from all `STARTS` at once."""
    theta = torch.zeros(len(STARTS), len(shares), x.shape[1])
    theta[..., 0] = torch.tensor(STARTS).log().unsqueeze(1)
    theta.requires_grad_()
    optimizer = torch.optim.Adam([theta], lr=0.03)
    for _ in range(steps):
        means = (response.near(theta @ x.T) * shares).sum(-1) + shrink * theta[..., 1:].square().sum(-1)
        optimizer.zero_grad()
        means.sum().backward()  # fits do not meet, and Adam looks at each number alone
        optimizer.step()
    return theta.detach()[means.argmin(0), torch.arange(len(shares))]


def _fit_networks(x: Tensor, response: Response, shares: Tensor, hidden: int) -> Tensor:
    """(fits, rows) log r from networks side by side, which all begin alike; x is (fits, rows, features)."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        first = nn.Linear(x.shape[2], hidden)
    begin = (first.weight.T, first.bias, torch.zeros(hidden, 1), torch.full((1,), math.log(0.1)))
    weights = [tensor.detach().expand(len(shares), *tensor.shape).clone().requires_grad_() for tensor in begin]

    def outputs() -> Tensor:
        w1, b1, w2, b2 = weights
        return (torch.tanh(x @ w1 + b1.unsqueeze(1)) @ w2).squeeze(2) + b2

    optimizer = torch.optim.AdamW(weights, lr=0.01, weight_decay=0.1)
    for _ in range(300):
        optimizer.zero_grad()
        (response.near(outputs()) * shares).sum().backward()
        optimizer.step()
    return outputs().detach()
