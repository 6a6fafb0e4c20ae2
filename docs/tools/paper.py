"""The paper's numbers beside ours, from committed records."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from mlrsnet.baselines.hand_designed import HAND_DESIGNED
from mlrsnet.lab import records
from mlrsnet.lab.optimizers import EAGER
from mlrsnet.lab.recipes import sensitivity as sensitivity_recipe
from mlrsnet.lab.recipes import table1 as table1_recipe
from mlrsnet.lab.recipes import table3 as table3_recipe
from mlrsnet.lab.recipes.base import slug
from mlrsnet.lab.records import Record
from mlrsnet.lab.report.numbers import Stat, metric_stat, metric_text, number, stat

RESULTS = Path(__file__).parents[2] / "results"
NOT_RUN = "not run"
OTHER_THAN_PACE = (sensitivity_recipe.CELL, sensitivity_recipe.LEAKY)
"""Settings that do not change the meta LR or the number of updates."""

AUTHORS = json.loads((RESULTS / "authors" / "meta-training.json").read_text())["cifar10_resnet18"]
"""What the authors' program wrote about its own meta-training."""


def place(recipe: str, scale: str) -> Path:
    """Where a recipe's runs are kept."""
    return RESULTS / f"{recipe.replace('-', '_')}_{scale}"


def runs(folder: Path) -> list[Record]:
    """All seeds below."""
    return [records.read(path.parent) for path in sorted(folder.glob("seed*/record.json"))]


def finished(folder: Path) -> list[Record]:
    """All seeds below that came to their end, diverged ones among them."""
    return [record for record in runs(folder) if record.ended]


def result(folder: Path) -> str:
    """Last epoch, mean ± deviation over seeds, and the mean of the best epochs in brackets; else how far a run has come."""
    if found := finished(folder):
        return told(found)
    begun = [run for run in runs(folder) if run.result]
    return ", ".join(f"{told([run])} after {run.result['epoch']} epochs" for run in begun) or NOT_RUN


def last_mean(found: Sequence[Record]) -> float | None:
    """Of the last epochs; None where nothing was run, or a run diverged."""
    if not found or any(run.status != records.FINISHED or run.result.get("last") is None for run in found):
        return None
    return mean(run.result["last"] for run in found)


def by_hand(run: Record) -> bool:
    """Whether nothing but its LR at the beginning is behind its LRs; Schedule-Free and Prodigy find LRs of their own."""
    return run.spec["schedule"] in (*HAND_DESIGNED, "val-strategy") and run.spec["optimizer"] not in EAGER


def told(found: list[Record]) -> str:
    """The same of runs; those that diverged without a number are not in the mean, and all that diverged are counted."""
    if not found:
        return NOT_RUN
    last, best = (stat(number(record.result.get(name)) for record in found) for name in ("last", "best"))
    astray = sum(record.status == records.DIVERGED for record in found)
    after = f", {astray} of {len(found)} diverged" if astray else ""
    return f"{metric_stat(last)} ({metric_text(best.mean if best else None)}){after}"


def table1() -> list[str]:
    """CIFAR-10, ResNet-18: the paper, the authors' own record, ours at 200 and at 60 epochs."""
    rows = [cell.row for cell in table1_recipe.cells("paper") if cell.column == "CIFAR-10"]
    printed = table1_recipe.PAPER["CIFAR-10"]
    lines = [
        "| | paper | the authors' record | ours, 200 epochs | ours, 60 epochs |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        theirs = metric_stat(Stat(*printed[row])) if row in printed else ""
        record = f"{AUTHORS['last']:.2f} ({AUTHORS['best']:.2f})" if row == table1_recipe.THEIRS else ""
        ours = [result(place("table1", scale) / "cifar-10" / slug(row)) for scale in ("paper", "short")]
        lines.append(f"| {row} | {theirs} | {record} | {' | '.join(ours)} |")
    return lines


@dataclass(frozen=True)
class MetaTraining:
    """One run of Algorithm 1 as a point of the picture: how far Adam could go, where the LR ended, what came out.

    falls: how often a logged slope said "smaller"; one update an epoch is logged, the last.
    """

    name: str
    epochs: int
    updates: int
    meta_lr: float
    first_lr: float
    last_lr: float
    accuracy: float
    falls: tuple[bool, ...] = ()

    @property
    def travel(self) -> float:
        """Meta LR times meta-updates: about the largest distance that Adam can move a weight."""
        return self.meta_lr * self.updates


def meta_training(record: Record) -> MetaTraining:
    """From a run; the LR at the end is the median of the last epoch."""
    data, options, trace = record.data, record.spec["schedule_options"], record.trace
    late = [
        lr
        for step, lr in zip(trace["step"], trace["lr"], strict=True)
        if step >= data["total_steps"] - data["steps_per_epoch"]
    ]
    return MetaTraining(
        data["labels"]["row"],
        record.spec["epochs"],
        _updates(data, options),
        options.get("meta_lr", 1e-3),
        trace["lr"][0],
        median(late),
        record.result["last"],
        tuple(line["hypergradient"] > 0 for line in record.epochs),
    )


def _updates(data: dict[str, Any], options: dict[str, Any]) -> int:
    """How many meta-updates there were: the authors count T_val anew in every epoch, and update at its end."""
    compat = options.get("compat", [])
    if {"official", "epoch-period"} & set([compat] if isinstance(compat, str) else compat):
        return int(data["spec"]["epochs"] * (data["steps_per_epoch"] // options["every"]))
    return math.ceil(data["total_steps"] / options["every"])


def meta_trainings(*recipes: str) -> list[MetaTraining]:
    """The runs of Algorithm 1 on CIFAR-10 with ResNet-18 that these recipes made, such as table1_short."""
    found = [
        record
        for recipe in recipes
        for folder in sorted((RESULTS / recipe / "cifar-10").glob("*"))
        for record in finished(folder)
    ]
    return [meta_training(record) for record in found if record.spec["schedule"] == "mlr-snet"]


def authors_meta_training() -> MetaTraining:
    """What the authors' program wrote: one update in each epoch."""
    lrs, epochs = AUTHORS["lr_mean_per_epoch"], AUTHORS["epochs"]
    return MetaTraining("the authors' record", epochs, epochs, 1e-3, lrs[0], lrs[-1], AUTHORS["last"])


def sensitivity() -> list[str]:
    """One thing changed at a time, 30 epochs; the LR at the end is the mean over seeds."""
    lines = [
        "| | meta-updates | meta LR x updates | LR at the end | validation (%) | test, last epoch (best) (%) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    found = meta_trainings("sensitivity_short")
    for name in dict.fromkeys(run.name for run in sorted(found, key=lambda run: (run.travel, run.name))):
        folder = place("sensitivity", "short") / "cifar-10" / slug(name)
        those = [run for run in found if run.name == name]
        val = mean(record.result["val_metric"] for record in finished(folder))
        last_lr = mean(run.last_lr for run in those)
        pace = f"{those[0].updates:,} | {those[0].travel:.3g}"
        lines.append(f"| {name} | {pace} | {last_lr:.2g} | {val:.1f} | {result(folder)} |")
    return lines


def text() -> list[str]:
    """Penn Treebank with two layers: test perplexity."""
    lines = ["| | paper, 150 epochs | ours, 150 epochs | ours, 20 epochs |", "| --- | --- | --- | --- |"]
    for row, (two, _) in table3_recipe.PAPER.items():
        ours = [result(place("table3", scale) / "2-layer-lstm" / slug(row)) for scale in ("paper", "short")]
        lines.append(f"| {row} | {metric_stat(Stat(*two))} | {' | '.join(ours)} |")
    return lines
