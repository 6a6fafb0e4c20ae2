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

from mlrsnet_lab.table.columns import Column
from mlrsnet_lab.table.file import Table

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

    def at(self, log_size: Tensor) -> Tensor:
        """(rows,) gap of each training at its own size; differentiable."""
        grid = self.log_sizes
        left = (torch.searchsorted(grid, log_size.detach().contiguous()) - 1).clamp(0, len(grid) - 2)
        share = (log_size - grid[left]) / (grid[left + 1] - grid[left])
        low, high = (self.gaps.gather(1, (left + k).unsqueeze(1)).squeeze(1) for k in (0, 1))
        beyond = torch.relu(grid[0] - log_size) + torch.relu(log_size - grid[-1])
        return low + (high - low) * share.clamp(0, 1) + SLOPE * beyond

    def near(self, log_size: Tensor) -> Tensor:
        """(rows,) mean gap at sizes around each training's own: without kinks that a fit would stop in."""
        return torch.stack([self.at(log_size + away) for away in AROUND]).mean(0)

    def rows(self, chosen: Tensor) -> "Response":
        """Of some of the trainings."""
        return Response(self.gaps[chosen], self.log_sizes)


def gaps(table: Table) -> np.ndarray:
    """(rows, columns) log gap to the best absolute decay of each training."""
    fitness = np.minimum(np.nan_to_num(np.array(table.fitness), nan=LARGEST, posinf=LARGEST), LARGEST)
    absolute = [Column.parse(name).structure == "absolute" for name in table.columns]
    best = fitness[:, absolute].min(axis=1, keepdims=True)
    found: np.ndarray = np.log((fitness + NEAR_0) / (best + NEAR_0))
    return found


def responses(table: Table) -> dict[tuple[str, float, float], Response]:
    """By structure, fall and rise; only those with at least three sizes."""
    found, columns = gaps(table), [Column.parse(name) for name in table.columns]
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


def features(table: Table, names: Sequence[str]) -> Tensor:
    """(rows, 1 + names): a constant and some of `FEATURES`."""
    known = list(zip(table.kinds, table.facts, strict=True))
    columns = [torch.tensor([FEATURES[name](kind, facts) for kind, facts in known]) for name in names]
    return torch.stack([torch.ones(len(table)), *columns], dim=1)


def fit(x: Tensor, response: Response, *, steps: int = 200, shrink: float = 1e-3) -> Tensor:
    """theta of the law log r = theta . x with the smallest mean gap; `shrink` keeps exponents from growing for nothing."""
    best, lowest = torch.zeros(x.shape[1]), math.inf
    for start in STARTS:
        theta = torch.zeros(x.shape[1])
        theta[0] = math.log(start)
        theta.requires_grad_()
        optimizer = torch.optim.Adam([theta], lr=0.03)
        for _ in range(steps):
            mean = response.near(x @ theta).mean() + shrink * theta[1:].square().sum()
            optimizer.zero_grad()
            mean.backward()
            optimizer.step()
        if float(mean.detach()) < lowest:
            best, lowest = theta.detach().clone(), float(mean.detach())
    return best


def cross_validated(x: Tensor, response: Response, families: Sequence[str]) -> Tensor:
    """(rows,) gaps, each under the law that was fitted without the training's family."""
    found = torch.empty(len(x))
    for family in sorted(set(families)):
        own = torch.tensor([one == family for one in families])
        found[own] = response.rows(own).at(x[own] @ fit(x[~own], response.rows(~own)))
    return found


def network_cross_validated(x: Tensor, response: Response, families: Sequence[str], *, hidden: int = 16) -> Tensor:
    """(rows,) gaps under a small network instead of a power law."""
    found = torch.empty(len(x))
    for family in sorted(set(families)):
        own = torch.tensor([one == family for one in families])
        mean, std = x[~own].mean(0), x[~own].std(0, correction=0).clamp(min=1e-3)
        net = _fit_network((x[~own] - mean) / std, response.rows(~own), hidden)
        with torch.no_grad():
            found[own] = response.rows(own).at(net((x[own] - mean) / std).squeeze(1))
    return found


def _fit_network(x: Tensor, response: Response, hidden: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        net = nn.Sequential(nn.Linear(x.shape[1], hidden), nn.Tanh(), nn.Linear(hidden, 1))
    with torch.no_grad():
        net[2].weight.zero_()  # type: ignore[union-attr, operator]
        net[2].bias.fill_(math.log(0.1))  # type: ignore[union-attr, operator]
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(300):
        optimizer.zero_grad()
        response.near(net(x).squeeze(1)).mean().backward()
        optimizer.step()
    return net
