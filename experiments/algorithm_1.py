"""Algorithm 1: what sets its pace, where the authors' program departs from the paper, and the schedules that it left.

Adam sets the pace: the more meta-updates, or the larger the meta LR, the lower the LR ends. The cards of the shipped schedules were
written from the records of their runs by `python -m experiments ship` at commit 96fdb0853c23; a test compares them. Of several runs
the one with the best validation result is shipped; test results are reported, and chose nothing.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from experiments import markdown, results
from experiments.drawing import lrs, new, plain, save
from mlrsnet import Schedule
from mlrsnet_lab import records
from mlrsnet_lab.recipes import attribution as attribution_recipe
from mlrsnet_lab.recipes import sensitivity as sensitivity_recipe
from mlrsnet_lab.recipes import table1 as table1_recipe
from mlrsnet_lab.recipes.authors import DEPARTURES
from mlrsnet_lab.records import Record
from mlrsnet_lab.report.numbers import metric_text
from mlrsnet_lab.report.tables import Row

OTHER_THAN_PACE = (sensitivity_recipe.CELL, sensitivity_recipe.LEAKY)
"""Settings that change neither the meta LR nor the number of updates."""


def authors() -> dict[str, Any]:
    """What the authors' program wrote about its own meta-training."""
    return dict(results.data("authors/meta-training.json")["cifar10_resnet18"])


@dataclass(frozen=True)
class MetaTraining:
    """One run of Algorithm 1: how far Adam could move the network, where the LR ended, and the result."""

    name: str
    epochs: int
    updates: int
    meta_lr: float
    first_lr: float
    last_lr: float
    accuracy: float

    @property
    def travel(self) -> float:
        """Meta LR times meta-updates: about the largest distance that Adam can move a weight."""
        return self.meta_lr * self.updates


def meta_training(run: Record) -> MetaTraining:
    """From a run; the LR at the end is the median of the last epoch."""
    data, options, trace = run.data, run.spec["schedule_options"], run.trace
    start = data["total_steps"] - data["steps_per_epoch"]
    late = [lr for step, lr in zip(trace["step"], trace["lr"], strict=True) if step >= start]
    return MetaTraining(
        data["labels"]["row"],
        run.spec["epochs"],
        _updates(data, options),
        options.get("meta_lr", 1e-3),
        trace["lr"][0],
        median(late),
        run.result["last"],
    )


def _updates(data: dict[str, Any], options: dict[str, Any]) -> int:
    """The number of meta-updates; the authors' program counts T_val anew in every epoch, and updates at its end."""
    compat = options.get("compat", [])
    if compat == "official" or "epoch-period" in compat:  # a record of version 0.1 calls several departures "official"
        return int(data["spec"]["epochs"] * (data["steps_per_epoch"] // options["every"]))
    return math.ceil(data["total_steps"] / options["every"])


def meta_trainings(folder: str, column: str = "CIFAR-10") -> list[MetaTraining]:
    """The runs of Algorithm 1 in a column."""
    return [meta_training(run) for row in _rows(folder, column) for run in results.ended(row)]


def _rows(folder: str, column: str) -> list[Row]:
    rows = results.rows(folder, column).values()
    return [row for row in rows if results.ended(row)[0].spec["schedule"] == "mlr-snet"]


def authors_meta_training() -> MetaTraining:
    """What the authors' program wrote: one update per epoch."""
    found = authors()
    rates, epochs = found["lr_mean_per_epoch"], found["epochs"]
    return MetaTraining("the authors' record", epochs, epochs, 1e-3, rates[0], rates[-1], found["last"])


def sensitivity() -> list[str]:
    """One setting changed at a time, 30 epochs; the LR at the end is the mean over seeds."""
    heads = ["", "meta-updates", "meta LR x updates", "LR at the end", "validation (%)", "test, last epoch (best) (%)"]
    found = {
        row.name: (row, [meta_training(run) for run in results.ended(row)])
        for row in _rows("sensitivity_short", "CIFAR-10")
    }
    lines = []
    for name, (row, trained) in sorted(found.items(), key=lambda item: (item[1][1][0].travel, item[0])):
        val = mean(run.result["val_metric"] for run in results.ended(row))
        last_lr = mean(one.last_lr for one in trained)
        pace = [f"{trained[0].updates:,}", f"{trained[0].travel:.3g}", f"{last_lr:.2g}"]
        lines.append([name, *pace, f"{val:.1f}", results.outcome(row)])
    return markdown.table(heads, lines)


LOOKS = {
    "meta LR 0.0001": "#999999",
    "T_val 300": "#56B4E9",
    "the authors' cell": "#009E73",
    "leaky": "#E69F00",
    "T_val 100": "#000000",
    "T_val 15": "#CC79A7",
    "meta LR 0.01": "#0072B2",
    "T_val 3": "#D55E00",
}


def draw(out: Path) -> None:
    """LRs of Algorithm 1 under eight settings; where they end, and the result, over meta LR x meta-updates."""
    figure, (curves, ends, accuracies) = new(1, 3, (12, 4.2))
    for name, colour in LOOKS.items():
        runs = results.runs("sensitivity_short", "CIFAR-10", name)
        points = [meta_training(run) for run in runs]
        curves.plot(*lrs(runs[0]), color=colour, linewidth=1.4, label=name)
        _dots(ends, accuracies, points, color=colour, s=55)
    for label, (found, marker, size) in _longer().items():
        _dots(ends, accuracies, found, label, facecolors="none", edgecolors="#000000", marker=marker, s=size)
    cosine = results.run("horizon_short", "CIFAR-10", "Cosine 0.1")
    accuracies.axhline(cosine.result["last"], color="#0072B2", linewidth=1.2)
    accuracies.text(0.01, 92.5, "cosine from 0.1, 30 epochs", color="#0072B2", ha="left", va="bottom", fontsize=8)
    curves.set(xlabel="epoch", title="LR that Algorithm 1 sets", yscale="log")
    figure.legend(*curves.get_legend_handles_labels(), frameon=False, fontsize=9, loc="outside lower center", ncols=8)
    ends.set(xlabel="meta LR x meta-updates", title="LR at the end", xscale="log", yscale="log")
    accuracies.set(xlabel="meta LR x meta-updates", title="test accuracy (%), last epoch", xscale="log")
    ends.legend(frameon=False, fontsize=8, loc="lower left", title="dots: 30 epochs", title_fontsize=8)
    for axes in (curves, ends, accuracies):
        plain(axes)
    save(figure, out)


def _longer() -> dict[str, tuple[list[MetaTraining], str, int]]:
    """Trainings of other lengths: their marker and its size."""
    longer, theirs = meta_trainings("table1_paper"), table1_recipe.THEIRS
    return {
        "60 epochs": (meta_trainings("table1_short"), "^", 40),
        "200 epochs": ([run for run in longer if run.name != theirs], "s", 40),
        "the authors' program, 200 epochs": ([run for run in longer if run.name == theirs], "P", 55),
        "the authors' record, 200 epochs": ([authors_meta_training()], "*", 90),
    }


def _dots(ends: Any, accuracies: Any, points: list[MetaTraining], label: str | None = None, **look: Any) -> None:
    travels = [point.travel for point in points]
    ends.scatter(travels, [point.last_lr for point in points], zorder=3, label=label, **look)
    accuracies.scatter(travels, [point.accuracy for point in points], zorder=3, **look)


def departures() -> list[str]:
    """One row per departure."""
    lines = ([f"`{name}`", one.paper, one.program, f"`{one.switch(name)}`"] for name, one in DEPARTURES.items())
    return markdown.table(["", "the paper", "the authors' program", "switch"], lines)


def attribution() -> list[str]:
    """The rows of the recipe `attribution`, and which departures each has."""
    lines = ([row, _names(names)] for row, names in attribution_recipe.ROWS.items())
    return markdown.table(["row", "departures"], lines)


def _names(names: list[str]) -> str:
    missing = [name for name in DEPARTURES if name not in names]
    if not missing:
        return "all"
    if len(missing) < len(names):
        return f"all but {', '.join(f'`{name}`' for name in missing)}"
    return ", ".join(f"`{name}`" for name in names) or "none"


SHIPPED = ("cifar10-resnet18", "ptb-lstm")
OWN, FAILS = "its own meta-training", "where it fails"


def shipped() -> list[str]:
    """How each was made, what it reached and where it fails."""
    heads = ["schedule", "how it was made", "what it reached", "where it fails"]
    return markdown.table(heads, map(_card, SHIPPED))


def _card(name: str) -> list[str]:
    card = Schedule.load(name).card
    own = card.results[OWN]
    reached = [f"{key}: {metric_text(own[key])}" for key in own if key.startswith(("validation", "test"))]
    run = meta_training(records.read(results.ROOT / own["record"]))
    reached.append(f"LR: from {run.first_lr:.2g} to {run.last_lr:.2g}, the median of the last epoch")
    how = f"{card.description} [Record]({_link(own['record'])})"
    return [f"`{name}`", how, f"{own['metric']}; {'; '.join(reached)}", card.results[FAILS]]


def _link(record: str) -> str:
    """The file that holds the run of a folder such as results/table1_paper/cifar-10/mlr-snet/seed0."""
    folder = results.RESULTS / Path(record).relative_to("results")
    return f"../results/{records.file_of(folder).relative_to(results.RESULTS).as_posix()}"
