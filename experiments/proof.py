"""The default and tuning-free rivals against the best-tuned decay, on the tasks of the recipe `proof`.

An error is what is left to do, lower is better: 100 - accuracy (%) for classes, RMSE for numbers, and nats per token for text: the
log of the perplexity, which is the loss itself. A ratio of perplexities is the exponential of a difference of losses, so the same
ratio says more where the loss is small; a ratio of nats is a share of what is left, as it is for the other two.

The best decay of a task is the one whose validation error, the mean over seeds, is lowest; one that diverged is no candidate. Every
row is compared with it seed by seed, on test data, at the last epoch: r = exp(mean over seeds of log(error / error of the decay)).
A training that diverged counts as guessing, or as predicting the mean, and is marked with a cross.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, mean, stdev

from experiments import markdown, results
from mlrsnet_lab.recipes.proof import TIMES, UNTOLD, VALIDATED
from mlrsnet_lab.recipes.rows import KINDS
from mlrsnet_lab.records import DIVERGED, Record
from mlrsnet_lab.report.tables import Row

FOLDER = "proof_short"
DECAYS = [f"{kind.capitalize()} {times:g}x" for kind in KINDS for times in TIMES]
USUAL, NOTHING = "Cosine 1x", "doing nothing"
ASTRAY = " †"


@dataclass(frozen=True)
class Ratio:
    """A row's error against the best decay's: the geometric mean over seeds, the spread of its log, and whether it diverged."""

    value: float
    spread: float | None
    seeds: int
    diverged: bool = False

    @property
    def text(self) -> str:
        """As a table has it: the ratio, its standard error over seeds, and a cross if a training diverged."""
        error = f" ± {self.value * self.spread / math.sqrt(self.seeds):.3f}" if self.spread is not None else ""
        return f"{self.value:.3f}{error}{ASTRAY if self.diverged else ''}"


def error(metric: str, value: float) -> float:
    """What is left to do, from a metric.

    >>> error("accuracy", 90.0), error("perplexity", math.e), error("RMSE", 3.0)
    (10.0, 1.0, 3.0)
    """
    return {"accuracy": 100 - value, "perplexity": math.log(value) if value < math.inf else math.inf, "RMSE": value}[
        metric
    ]


def guessing(run: Record) -> float:
    """The error of an answer that does not look at its input."""
    task, metric = run.data["task"], run.data["metric"]["name"]
    if metric == "RMSE":
        return float(task["rmse_of_mean"])
    classes = task["num_classes"]
    return math.log(classes) if metric == "perplexity" else 100 * (1 - 1 / classes)


def last_error(run: Record) -> float:
    """Of the last epoch; of guessing if it diverged."""
    if run.status == DIVERGED or run.result.get("last") is None:
        return guessing(run)
    return error(run.data["metric"]["name"], run.result["last"])


def best_decay(rows: dict[str, Row]) -> str | None:
    """By validation; only decays with as many seeds as the most complete one, none of which diverged."""
    there = {name: results.ended(rows[name]) for name in DECAYS if name in rows}
    whole = max(map(len, there.values()), default=0)
    found = {
        name: mean(error(run.data["metric"]["name"], run.result["val_metric"]) for run in runs)
        for name, runs in there.items()
        if len(runs) == whole and not any(run.status == DIVERGED for run in runs)
    }
    return min(found, key=lambda name: found[name], default=None)


def at_edge(decay: str, rows: Collection[str]) -> bool:
    """Whether no decay among these rows has a smaller LR, or none has a larger one.

    >>> at_edge("Linear 3x", ["Linear 1x", "Linear 3x"]), at_edge("Cosine 1x", ["Linear 0.3x", "Cosine 1x", "Linear 3x"])
    (True, False)
    """
    tried = [_times(name) for name in DECAYS if name in rows]
    return _times(decay) in (min(tried), max(tried))


def _times(decay: str) -> float:
    return float(decay.split()[1].removesuffix("x"))


def ratio(runs: Sequence[Record], decay: Sequence[Record], errors: Sequence[float] | None = None) -> Ratio | None:
    """Seed by seed, over the seeds that both have; `errors` replace those of the runs."""
    found = list(logs(runs, decay, errors).values())
    if not found:
        return None
    astray = errors is None and any(run.status == DIVERGED for run in runs)
    return Ratio(math.exp(mean(found)), stdev(found) if len(found) > 1 else None, len(found), astray)


def logs(runs: Sequence[Record], decay: Sequence[Record], errors: Sequence[float] | None = None) -> dict[int, float]:
    """log(error / error of the decay), by the seeds that both have."""
    base = {run.spec["seed"]: last_error(run) for run in decay}
    own = dict(zip((run.spec["seed"] for run in runs), errors or map(last_error, runs), strict=True))
    return {seed: math.log(max(own[seed], 1e-9) / max(base[seed], 1e-9)) for seed in own if seed in base}


def ratios(rows: dict[str, Row]) -> tuple[str, dict[str, Ratio]] | None:
    """The best decay's name, and every other row against it; None without a decay."""
    tuned = best_decay(rows)
    if tuned is None:
        return None
    decay = results.ended(rows[tuned])
    others = [name for name in rows if name not in DECAYS or name == USUAL]
    found = {name: one for name in others if (one := ratio(results.ended(rows[name]), decay))}
    before = [run.data["before"]["test"]["metric"] for run in decay if "before" in run.data]
    if before:
        idle = ratio(decay, decay, [error(decay[0].data["metric"]["name"], value) for value in before])
        found |= {NOTHING: idle} if idle else {}
    return tuned, found


def table(folder: str = FOLDER) -> list[str]:
    """One line per task, one column per row; then the geometric mean, the worst task, and how many are within 5 %."""
    found = {one.title: made for one in results.columns(folder) if (made := ratios(results.rows(folder, one.title)))}
    if not found:
        return results.NOTHING
    every = list(dict.fromkeys(name for _, row in found.values() for name in row if name != VALIDATED))
    heads = [name for name in (*HEADS, NOTHING) if name in every] if folder == FOLDER else every
    lines = [
        [
            task,
            f"{tuned}{' (edge)' if at_edge(tuned, results.rows(folder, task)) else ''}",
            *(row[head].text if head in row else "" for head in heads),
        ]
        for task, (tuned, row) in found.items()
    ]
    by_head = {head: {task: row[head].value for task, (_, row) in found.items() if head in row} for head in heads}
    last = {
        "**geometric mean**": [f"**{geometric_mean(those.values()):.3f}**" for those in by_head.values()],
        "worst task": [f"{max(those.values()):.3f}" for those in by_head.values()],
        "at most 1.05": [f"{sum(one <= 1.05 for one in those.values())} of {len(those)}" for those in by_head.values()],
    }
    return [
        *markdown.table(["error / best-tuned decay's", "which is", *(HEADS.get(name, name) for name in heads)], lines),
        *(markdown.line([name, "", *cells]) for name, cells in last.items()),
        "",
        "Last epoch, test data, ± standard error over paired seeds; below 1 is better than the best-tuned decay. †: a training "
        "diverged and counts as guessing.",
    ]


def validated(folder: str = FOLDER) -> list[str]:
    """The default beside itself with validation losses, on the tasks that have enough epochs for them."""
    found = {task: row for task, row in _by_task(folder).items() if VALIDATED in row}
    if not found:
        return results.NOTHING
    names = ("Universal", VALIDATED)
    lines = [[task, *(row[name].text for name in names)] for task, row in found.items()]
    means = [f"**{geometric_mean([row[name].value for row in found.values()]):.3f}**" for name in names]
    heads = ["error against the best decay", "default", "default, validated"]
    return [*markdown.table(heads, lines), markdown.line(["**geometric mean**", *means])]


HEADS = {
    "Universal": "default",
    UNTOLD: "default, without losses",
    "Calibrated AdamW": "AdamW, calibrated",
    "One relative size": "one relative size",
    USUAL: "cosine, usual LR",
    "Schedule-Free": "Schedule-Free",
    "Prodigy": "Prodigy",
}
"""What the table shows of the rows, and its names there."""


def _by_task(folder: str) -> dict[str, dict[str, Ratio]]:
    return {one.title: made[1] for one in results.columns(folder) if (made := ratios(results.rows(folder, one.title)))}
