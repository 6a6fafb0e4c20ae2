"""The default and its rivals on kinds of training that no law was fitted to: from the records of `lab/studies/judge`."""

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from experiments import markdown, results

RUNS = results.RESULTS / "judge" / "runs.jsonl.gz"
DECAYS, USUAL = ("linear", "cosine"), "cosine 1x"
SHOWN = (
    "default",
    "default told more",
    "default without losses",
    "calibrated AdamW",
    "one relative size",
    USUAL,
    "Schedule-Free",
    "Prodigy",
)
"""Methods in the table of tasks."""

FEW_EPOCHS, FARTHER, DRAWS, DIGITS = 3, 1.1, 4000, 6

Record = dict[str, Any]
Logs = dict[str, dict[int, float]]
"""By task and seed: log(error / error of the best-tuned decay)."""


class Decay(NamedTuple):
    """The best-tuned decay of a task, and its runs by seed."""

    kind: str
    multiple: float
    runs: dict[int, Record]

    @property
    def name(self) -> str:
        """As in tables."""
        return f"{self.kind} {self.multiple:g}x"

    @property
    def mark(self) -> str:
        """Whether it is over-fitting, under-fitted or neither."""
        losses = [
            (run["test_loss"], run["training_loss"]) for run in self.runs.values() if run["test_loss"] is not None
        ]
        if losses and fmean(test for test, _ in losses) > FARTHER * fmean(train for _, train in losses):
            return "over-fitting"
        return "under-fitted" if any(run["epochs"] < FEW_EPOCHS for run in self.runs.values()) else ""


class Summary(NamedTuple):
    """Over tasks: geometric mean, its interval of 95 %, the largest, how many are at most 1.05, and of how many."""

    mean: float
    low: float
    high: float
    worst: float
    within: int
    tasks: int


@cache
def read(path: Path = RUNS) -> list[Record]:
    """All trainings that ended or diverged; none if there are no records."""
    if not path.is_file():
        return []
    lines = map(json.loads, gzip.decompress(path.read_bytes()).decode().splitlines())
    return [record for record in lines if "failed" not in record]


def error(record: Record) -> float:
    """On test data at the end; that of the untrained network if the training diverged."""
    return float(record["untrained"] if record["test"] is None else record["test"])


def tuned(records: Iterable[Record]) -> dict[str, Decay]:
    """By task: by mean validation error, then loss, among those with as many seeds as the most complete, none of them astray."""
    found: dict[str, dict[tuple[str, float], dict[int, Record]]] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        if record["method"] in DECAYS:
            found[record["task"]][record["method"], record["multiple"]][record["seed"]] = record
    best = {}
    for task, decays in found.items():
        whole = max(map(len, decays.values()))
        levels = {
            name: tuple(fmean(run[kind] for run in runs.values()) for kind in ("validation", "validation_loss"))
            for name, runs in decays.items()
            if len(runs) == whole and all(run["validation"] is not None for run in runs.values())
        }
        if levels:
            name = min(levels, key=lambda name: (round(levels[name][0], DIGITS), levels[name][1]))
            best[task] = Decay(*name, decays[name])
    return best


def logs(records: Iterable[Record]) -> dict[str, Logs]:
    """By method, over the seeds that it and the decay have."""
    records = list(records)
    decays = tuned(records)
    found: dict[str, Logs] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        decay, name = decays.get(record["task"]), record["method"]
        if name == "cosine" and record["multiple"] == 1:
            name = USUAL
        if name in DECAYS or decay is None or record["seed"] not in decay.runs:
            continue
        base = error(decay.runs[record["seed"]])
        found[name][record["task"]][record["seed"]] = math.log(max(error(record), 1e-9) / max(base, 1e-9))
    return found


def summary(by_task: Logs) -> Summary:
    """The interval comes from draws of tasks, and of seeds within each."""
    means = [fmean(by_seed.values()) for by_seed in by_task.values()]
    random, values = np.random.default_rng(0), [np.array(list(by_seed.values())) for by_seed in by_task.values()]
    drawn = []
    for _ in range(DRAWS):
        tasks = random.integers(len(values), size=len(values))
        drawn.append(
            fmean(values[task][random.integers(len(values[task]), size=len(values[task]))].mean() for task in tasks)
        )
    low, high = np.exp(np.quantile(drawn, (0.025, 0.975)))
    within = sum(math.exp(mean) <= 1.05 for mean in means)
    return Summary(math.exp(fmean(means)), float(low), float(high), math.exp(max(means)), within, len(means))


def table(path: Path = RUNS) -> list[str]:
    """One line per task, one column per method; then what they come to."""
    records = read(path)
    every, decays = logs(records), tuned(records)
    found = {name: every[name] for name in SHOWN if name in every}
    if not found:
        return results.NOTHING
    astray = {(run["method"], run["task"]) for run in records if run["test"] is None}
    lines = [
        [
            f"{task}, {decay.mark}".removesuffix(", "),
            f"{decay.name}{' (edge)' if at_edge(records, task, decay) else ''}",
            *(
                _text(list(by_task[task].values())) + ("†" if (name, task) in astray else "") if task in by_task else ""
                for name, by_task in found.items()
            ),
        ]
        for task, decay in decays.items()
    ]
    sums = [summary(by_task) for by_task in found.values()]
    last = {
        "**geometric mean**": [f"**{one.mean:.3f}**" for one in sums],
        "95 % interval": [f"{one.low:.3f} to {one.high:.3f}" for one in sums],
        "worst": [f"{one.worst:.3f}" for one in sums],
        "at most 1.05": [f"{one.within} of {one.tasks}" for one in sums],
    }
    return [
        *markdown.table(["error / best-tuned decay's", "which is", *found], lines),
        *(markdown.line([name, "", *cells]) for name, cells in last.items()),
        "",
        "Test data at the end, ± standard error over paired seeds. Over-fitting: the best decay's test loss is above "
        f"{FARTHER:g} times its loss over the last 5 % of steps. Under-fitted: it is not, and examples are seen fewer than "
        f"{FEW_EPOCHS} times. The interval comes from draws of tasks and of their seeds. †: a training diverged and counts as an "
        "untrained network.",
    ]


def at_edge(records: Iterable[Record], task: str, decay: Decay) -> bool:
    """Whether no LR below it, or none above it, was tried."""
    tried = [run["multiple"] for run in records if run["task"] == task and run["method"] == decay.kind]
    return decay.multiple in (min(tried), max(tried))


def _text(values: Sequence[float]) -> str:
    mean = math.exp(fmean(values))
    return f"{mean:.3f} ± {mean * stdev(values) / math.sqrt(len(values)):.3f}" if len(values) > 1 else f"{mean:.3f}"
