"""The paper's numbers beside ours, from committed records."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from mlrsnet.lab.recipes import table1 as table1_recipe
from mlrsnet.lab.recipes import table3 as table3_recipe
from mlrsnet.lab.recipes.base import slug

RESULTS = Path(__file__).parents[2] / "results"
NOT_RUN = "not run"
THEIRS = json.loads((RESULTS / "authors" / "meta-training.json").read_text())["cifar10_resnet18"]


def finished(folder: Path) -> list[dict[str, Any]]:
    """The records of all seeds below that came to their end, diverged ones among them."""
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("seed*/record.json"))]
    return [record for record in records if record["status"] in ("finished", "diverged")]


def result(folder: Path) -> str:
    """Last epoch, mean ± deviation over seeds, and the mean of the best epochs in brackets."""
    found = [record["result"] for record in finished(folder)]
    if not found:
        return NOT_RUN
    last = [one["last"] for one in found]
    spread = f" ± {stdev(last):.2f}" if len(last) > 1 else ""
    return f"{mean(last):.2f}{spread} ({mean(one['best'] for one in found):.2f})"


def table1() -> list[str]:
    """CIFAR-10, ResNet-18: the paper, the authors' own record, ours at 200 and at 60 epochs."""
    rows = [cell.row for cell in table1_recipe.cells("paper") if cell.column == "CIFAR-10"]
    printed = table1_recipe.PAPER["CIFAR-10"]
    lines = [
        "| | paper | the authors' record | ours, 200 epochs | ours, 60 epochs |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        told = "{:.2f} ± {:.2f}".format(*printed[row]) if row in printed else ""
        record = f"{THEIRS['last']:.2f} ({THEIRS['best']:.2f})" if row == table1_recipe.THEIRS else ""
        ours = [result(RESULTS / f"table1_{scale}" / "cifar-10" / slug(row)) for scale in ("paper", "short")]
        lines.append(f"| {row} | {told} | {record} | {' | '.join(ours)} |")
    return lines


@dataclass(frozen=True)
class MetaTraining:
    """One run of Algorithm 1 as a point of the picture: how far Adam could go, where the LR ended, what came out."""

    name: str
    epochs: int
    updates: int
    meta_lr: float
    last_lr: float
    accuracy: float

    @property
    def travel(self) -> float:
        """Meta LR times meta-updates: about the largest distance that Adam can move a weight."""
        return self.meta_lr * self.updates


def meta_training(record: Path) -> MetaTraining:
    """From the record of a run."""
    data = json.loads(record.read_text())
    last = json.loads((record.parent / "epochs.jsonl").read_text().splitlines()[-1])
    options, epochs = data["spec"]["schedule_options"], data["spec"]["epochs"]
    if "official" in options.get("compat", ""):  # T_val is counted anew in every epoch
        updates = epochs * (data["steps_per_epoch"] // options["every"])
    else:
        updates = math.ceil(data["total_steps"] / options["every"])
    return MetaTraining(
        data["labels"]["row"], epochs, updates, options.get("meta_lr", 1e-3), last["lr"], data["result"]["last"]
    )


def meta_trainings() -> list[MetaTraining]:
    """Every run of Algorithm 1 on CIFAR-10 with ResNet-18, of all recipes."""
    folders = [*RESULTS.glob("sensitivity_*/cifar-10/*"), *RESULTS.glob("table1_[sp][ha]*/cifar-10/mlr-snet*")]
    found = [path for folder in sorted(folders) for path in sorted(folder.glob("seed*/record.json"))]
    return [meta_training(path) for path in found if "mlr-snet" in path.read_text()]


def sensitivity() -> list[str]:
    """One thing changed at a time, 30 epochs."""
    lines = [
        "| | meta-updates | meta LR x updates | LR at the end | test accuracy, last epoch (best) |",
        "| --- | --- | --- | --- | --- |",
    ]
    folder = RESULTS / "sensitivity_short" / "cifar-10"
    runs = [
        meta_training(path) for path in sorted(folder.glob("*/seed0/record.json")) if "mlr-snet" in path.read_text()
    ]
    for run in sorted(runs, key=lambda run: (run.travel, run.name)):
        outcome = result(folder / slug(run.name))
        lines.append(f"| {run.name} | {run.updates:,} | {run.travel:.3g} | {run.last_lr:.2g} | {outcome} |")
    return lines


def text() -> list[str]:
    """Penn Treebank with two layers: test perplexity."""
    lines = ["| | paper, 150 epochs | ours, 150 epochs | ours, 20 epochs |", "| --- | --- | --- | --- |"]
    for row, (two, _) in table3_recipe.PAPER.items():
        ours = [result(RESULTS / f"table3_{scale}" / "2-layer-lstm" / slug(row)) for scale in ("paper", "short")]
        lines.append(f"| {row} | {two[0]:.2f} ± {two[1]:.2f} | {' | '.join(ours)} |")
    return lines
