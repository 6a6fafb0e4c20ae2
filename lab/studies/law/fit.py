"""Laws for the size of a step, fitted to the table and judged on families that they were not fitted to.

    gap_i(log r) = log((e_i(r) + near) / (b_i + near))

e: the error of a training at r, straight between the sizes that were tried; b: the best of its decays. near is 0.02 where e is a
share of wrong answers, else 0. A law is log r = constants + powers * facts. Powers are free, or given; what is free descends the
mean gap around its r, each family counting the same.
"""

import gzip
import itertools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lab.studies.sweeps.steps import of_law_before
from mlrsnet.default import DEEPEST, USUAL_DEPTH, Size
from mlrsnet.law import Facts

Row = dict[str, Any]
NEAR, CAP, SLOPE = 0.02, 1.0, 0.3
"""CAP: of a gap, as where a training diverges. SLOPE: what a factor e beyond the sizes tried costs."""

AROUND = (-0.5, -0.25, 0.0, 0.25, 0.5)
STARTS = (0.03, 0.08, 0.2)
DRAWS = 2000
FALL = 0.1
MARKS, CLEARLY = 6, 0.01
"""How often a training's losses were kept; a difference of gaps that counts."""
FIRST_ROWS = 230
"""Numbers of rows below it were drawn first; the form FIRST was chosen on them."""


def _repeats(row: Row) -> float:
    return row["steps"] * row["batch"] / row["examples"]


def _is_whole(row: Row) -> bool:
    """Whether all weights are trained: adapters beside others have no depth of their own."""
    return bool(row["parameters"] == row["all_parameters"])


FACTS: dict[str, Callable[[Row], float]] = {
    "steps": lambda row: math.log(row["steps"] / 500),
    "size": lambda row: math.log(row["parameters"] / 1e4),
    "depth without norms": lambda row: math.log(max(1.0, row["depth"] / 4)) if _is_whole(row) else 0.0,
    "depth with norms": lambda row: (
        math.log(min(max(row["matrices"], USUAL_DEPTH), DEEPEST) / USUAL_DEPTH)
        if row["depth"] == 1 < row["matrices"] and _is_whole(row)
        else 0.0
    ),
    "depth with norms, to 32": lambda row: (
        math.log(min(row["matrices"], 32) / 4) if row["depth"] == 1 < row["matrices"] and _is_whole(row) else 0.0
    ),
    "batch": lambda row: math.log(row["batch"] / 32),
    "Adam": lambda row: float(row["optimizer"].startswith("adam")),
    "epochs": lambda row: math.log(_repeats(row)),
    "epochs beyond 3": lambda row: max(0.0, math.log(_repeats(row) / 3)),
    "trained": lambda row: float(row["is_trained"]),
}
"""Logarithms that are 0 for a usual training, or 1 for yes."""

FIRST = {
    "steps": -0.2,
    "size": -0.17,
    "depth without norms": -1.2,
    "depth with norms, to 32": -0.2,
    "batch": 0.15,
    "epochs beyond 3": -0.15,
}
FIRST_CONSTANTS = {"": math.log(0.124), "Adam": 0.567}
"""Round powers near those that the first rows and other people's sweeps want, and the constants that the first rows want."""

LAW = Size()
ROUND = {
    "steps": LAW.steps,
    "size": LAW.parameters,
    "depth without norms": LAW.depth,
    "depth with norms": LAW.depth_with_norms,
    "batch": LAW.batch,
}
"""The powers of the default, chosen after all rows and the sweeps had been seen."""

FORMS: dict[str, tuple[tuple[str, ...], dict[str, float]]] = {
    "one size": ((), {}),
    "steps, size, depth: free": (("steps", "size", "depth without norms"), {}),
    "and the batch": (("steps", "size", "depth without norms", "batch"), {}),
    "and Adam": (("steps", "size", "depth without norms", "batch", "Adam"), {}),
    "and depth with norms, epochs": ((*FIRST, "Adam"), {}),
    "round powers": (("Adam",), ROUND),
    **{
        f"without {left}": (("Adam",), {name: power for name, power in ROUND.items() if name != left})
        for left in ("depth with norms", "batch")
    },
    "without Adam": ((), ROUND),
    "with epochs": (("Adam",), {**ROUND, "epochs beyond 3": -0.15}),
}
"""Name: facts with free powers, and those with given ones."""


def read(path: Path) -> list[Row]:
    """The rows that could be trained."""
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    return [row for row in rows if "failed" not in row]


def near_of(best: float) -> float:
    """What is added to errors whose best is this."""
    return NEAR if best < 1 else 0.0


def curve(row: Row, fall: float = FALL) -> list[tuple[float, float]]:
    """(log r, gap) by size."""
    best = min(error for _, error, _ in row["decays"] if error is not None and math.isfinite(error))
    near = near_of(best)

    def gap(error: float) -> float:
        return min(CAP, math.log((error + near) / (best + near))) if math.isfinite(error) else CAP

    return sorted((math.log(size), gap(error)) for of, size, error, *_ in row["sizes"] if of == fall)


class Table:
    """The curves of all rows, side by side."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows, curves = rows, [curve(row) for row in rows]
        most = max(map(len, curves))
        for known in curves:  # a longer grid changes nothing beyond the sizes tried
            while len(known) < most:
                at, gap = known[-1]
                known.append((at + 1, gap + SLOPE))
        self.sizes, self.gaps = torch.tensor(curves).unbind(2)
        self.names = sorted({row["family"] for row in rows})
        self.family = torch.tensor([self.names.index(row["family"]) for row in rows])
        member = torch.nn.functional.one_hot(self.family).T.float()
        self.share = member / member.sum(1, keepdim=True)

    def at(self, log_sizes: Tensor) -> Tensor:
        """(..., rows) gaps."""
        left = (self.sizes <= log_sizes.detach().unsqueeze(-1)).sum(-1).clamp(1, self.sizes.shape[1] - 1) - 1
        rows = torch.arange(len(self.rows)).expand(left.shape)
        low, high = (self.sizes[rows, place] for place in (left, left + 1))
        begin, end = (self.gaps[rows, place] for place in (left, left + 1))
        beyond = torch.relu(self.sizes[:, 0] - log_sizes) + torch.relu(log_sizes - self.sizes[:, -1])
        return begin + (end - begin) * ((log_sizes - low) / (high - low)).clamp(0, 1) + SLOPE * beyond

    def by_family(self, gaps: Tensor) -> np.ndarray:
        """(families,) means."""
        return (self.share @ gaps).numpy()

    def facts(self, names: Sequence[str]) -> Tensor:
        """(rows, facts)."""
        return torch.tensor([[FACTS[name](row) for name in names] for row in self.rows]).reshape(
            len(self.rows), len(names)
        )

    def fit(self, free: Sequence[str], given: dict[str, float]) -> tuple[Tensor, Tensor]:
        """Constants and powers from all families, then without each: (1 + families, 1 + free). Gaps without the own: (rows,)."""
        base = self.facts(list(given)) @ torch.tensor(list(given.values()))
        x = torch.cat([torch.ones(len(self.rows), 1), self.facts(free)], dim=1)
        number = len(self.names)
        keep = torch.cat([torch.ones(1, number), 1 - torch.eye(number)])
        weights = keep @ self.share / keep.sum(1, keepdim=True)
        theta = torch.zeros(len(STARTS), 1 + number, x.shape[1])
        theta[..., 0] = torch.tensor(STARTS).log().unsqueeze(1)
        theta.requires_grad_()
        optimizer = torch.optim.Adam([theta], lr=0.03)
        for _ in range(250):
            near = torch.stack([self.at(theta @ x.T + base + off) for off in AROUND]).mean(0)
            means = (near * weights).sum(-1) + 1e-3 * theta[..., 1:].square().sum(-1)
            optimizer.zero_grad()
            means.sum().backward()
            optimizer.step()
        best = theta.detach()[means.argmin(0), torch.arange(1 + number)]
        return best, self.at((best[1:][self.family] * x).sum(1) + base)


def facts_of(row: Row) -> Facts:
    """What the default is told of a row's training."""
    return Facts(
        row["matrices"],
        row["parameters"],
        row["depth"] == 1 < row["matrices"],
        not _is_whole(row),
        is_adaptive=row["optimizer"].startswith("adam"),
        batch_size=row["batch"],
    )


def today(row: Row) -> float:
    """log r of the default, told everything."""
    return math.log(LAW(facts_of(row), row["steps"]))


def untold(row: Row) -> float:
    """The same, not told the batch."""
    return math.log(LAW(facts_of(row)._replace(batch_size=None), row["steps"]))


def before(row: Row) -> float:
    """log r of the default before it knew batch and optimizer: chosen by hand on 109 other trainings."""
    return math.log(of_law_before(row["steps"], row["parameters"], row["depth"] if _is_whole(row) else 1))


def first(row: Row) -> float:
    """log r of the form that was chosen on the first rows."""
    adam = FIRST_CONSTANTS["Adam"] * FACTS["Adam"](row)
    return FIRST_CONSTANTS[""] + adam + sum(power * FACTS[name](row) for name, power in FIRST.items())


def judged(table: Table, gaps: Tensor, before: np.ndarray | None = None) -> dict[str, Any]:
    """The mean over families with an interval that draws families, the worst tenth, and the mean difference to another law."""
    means = table.by_family(gaps)
    drawn = np.random.default_rng(0).integers(len(means), size=(DRAWS, len(means)))

    def told(values: np.ndarray) -> list[float]:
        return [float(values.mean()), *np.percentile(values[drawn].mean(1), [2.5, 97.5]).tolist()]

    found: dict[str, Any] = {"gap": told(means), "worst tenth": float(gaps.quantile(0.9))}
    return found if before is None else {**found, "more": told(means - before)}


def centre(row: Row) -> float:
    """log r in the middle of the sizes that are nearly best."""
    sizes, gaps = np.array(curve(row)).T
    weight = np.exp(-(gaps - gaps.min()) / 0.03)
    return float((weight * sizes).sum() / weight.sum())


def least_squares(rows: Sequence[Row], names: Sequence[str]) -> dict[str, Any]:
    """Powers that the middles of the best sizes want, each with its standard error, and the deviation of what is left."""
    x = np.array([[1.0] + [FACTS[name](row) for name in names] for row in rows])
    y = np.array([centre(row) for row in rows])
    theta, *_ = np.linalg.lstsq(x, y, rcond=None)
    left = y - x @ theta
    errors = np.sqrt(np.diag(np.linalg.inv(x.T @ x)) * left.var(ddof=x.shape[1]))
    pairs = dict(zip(("constant", *names), zip(theta.tolist(), errors.tolist(), strict=True), strict=True))
    return {"rows": len(rows), "left": float(left.std()), "powers": pairs}


def later(rows: Sequence[Row]) -> dict[str, Any]:
    """Laws on rows that were drawn after FIRST was chosen."""
    if not rows:
        return {}
    table = Table(rows)
    gaps = {name: table.at(torch.tensor([law(row) for row in rows])) for name, law in LAWS.items()}
    base = table.by_family(gaps["before"])
    return {"rows": len(rows), **{name: judged(table, found, base) for name, found in gaps.items()}}


LAWS: dict[str, Callable[[Row], float]] = {"before": before, "chosen on the first rows": first, "law": today}


def judged_on_larger(rows: Sequence[Row]) -> dict[str, Any]:
    """The mean gap on larger networks, of each law and of the best size; and each row's own."""
    table = Table(rows)
    gaps = {name: table.at(torch.tensor([law(row) for row in rows])) for name, law in LAWS.items()}
    gaps["best size"] = table.gaps.min(1).values
    facts = ("family", "optimizer", "parameters", "matrices", "batch", "steps")
    return {
        "mean": {name: float(found.mean()) for name, found in gaps.items()},
        "rows": [
            {**{key: row[key] for key in facts}, "best / law": math.exp(centre(row) - today(row))}
            | {name: float(found[place]) for name, found in gaps.items()}
            for place, row in enumerate(rows)
        ],
    }


OVER = (0.0, 0.95, 1.05, 1.5, math.inf)
"""Borders of test loss at the end / training loss at half-time."""


def advice(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What half and twice the default's steps cost, by how far the test loss at the end is above the training loss at half-time.

    That loss is a mean since a fifth of the training, under the size next to the default's.
    """
    found = []
    for row in rows:
        near = min(
            (one for one in row["sizes"] if one[0] == FALL and len(one[4]) == MARKS and one[3]),
            key=lambda one: abs(math.log(one[1]) - today(row)),
            default=None,
        )
        if near is not None and math.isfinite(near[3]) and near[3] > 0 < near[4][-1][1]:
            sizes, gaps = np.array(curve(row)).T
            at = [float(np.interp(today(row) + off, sizes, gaps)) for off in (-math.log(2), 0.0, math.log(2))]
            found.append((near[3] / near[4][-1][1], at[0] - at[1], at[2] - at[1]))
    ratio, half, twice = np.array(found).T
    parts = [(low, high, (ratio >= low) & (ratio < high)) for low, high in itertools.pairwise(OVER)]
    return [
        {
            "from": low,
            "to": high if math.isfinite(high) else None,
            "rows": int(own.sum()),
            "half": float(half[own].mean()),
            "twice": float(twice[own].mean()),
            "half is better": float((half[own] < -CLEARLY).mean()),
            "twice is better": float((twice[own] < -CLEARLY).mean()),
        }
        for low, high, own in parts
    ]


def fits(rows: Sequence[Row]) -> dict[str, Any]:
    """Everything that the page says of the table."""
    table = Table(rows)
    earlier = table.at(torch.tensor([before(row) for row in rows]))
    base = table.by_family(earlier)
    best = table.gaps.min(1).values
    other = torch.tensor([min(gap for _, gap in curve(row, 0.5)) for row in rows])
    forms = {}
    for name, (free, given) in FORMS.items():
        theta, gaps = table.fit(free, given)
        forms[name] = {
            "given": given,
            "constant": math.exp(float(theta[0, 0])),
            "powers": dict(zip(free, theta[0, 1:].tolist(), strict=True)),
            **judged(table, gaps, base),
        }
    known = table.by_family(table.at(torch.tensor([today(row) for row in rows])))
    names = [*ROUND, "Adam", "epochs", "trained"]
    once = [row for row in rows if _repeats(row) <= 3]
    return {
        "rows": len(rows),
        "families": len(table.names),
        "hours": sum(row["seconds"] for row in rows) / 3600,
        "before": judged(table, earlier),
        "best size": judged(table, best, base),
        "best size and fall of 0.1 or 0.5": judged(table, torch.minimum(best, other), base),
        "law": judged(table, table.at(torch.tensor([today(row) for row in rows])), base),
        "law, untold": judged(table, table.at(torch.tensor([untold(row) for row in rows])), base),
        "later rows": later([row for row in rows if row["number"] >= FIRST_ROWS]),
        "advice": advice(rows),
        "forms": forms,
        "least squares": {"all": least_squares(rows, names), "at most 3 epochs": least_squares(once, names)},
        "by family": {
            name: {
                "before": float(base[place]),
                "law": float(known[place]),
                "best": float(table.by_family(best)[place]),
                "best / law": math.exp(np.mean([centre(row) - today(row) for row in rows if row["family"] == name])),
            }
            for place, name in enumerate(table.names)
        },
    }
