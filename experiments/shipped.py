"""Schedules that Algorithm 1 left, shipped with the package: what their cards say.

The cards were written from the records of these runs by `python -m experiments ship` at commit 96fdb0853c23; a test compares them.
Of several runs the one with the best validation result is shipped; test results are reported, and chose nothing.
"""

from pathlib import Path

from experiments import markdown, results
from mlrsnet import Schedule
from mlrsnet_lab import records
from mlrsnet_lab.report.numbers import metric_text

NAMES = ("cifar10-resnet18", "ptb-lstm")
OWN, FAILS = "its own meta-training", "where it fails"


def table() -> list[str]:
    """How each was made, what it reached and where it fails."""
    heads = ["schedule", "how it was made", "what it reached", "where it fails"]
    return markdown.table(heads, map(_line, NAMES))


def _line(name: str) -> list[str]:
    card = Schedule.load(name).card
    own = card.results[OWN]
    reached = [f"{key}: {metric_text(own[key])}" for key in own if key.startswith(("validation", "test"))]
    reached.append(f"LR: from {own['LR at the beginning']:.2g} to {own['LR at the end']:.2g}")
    how = f"{card.description} [Record]({_link(own['record'])})"
    return [f"`{name}`", how, f"{own['metric']}; {'; '.join(reached)}", card.results[FAILS]]


def _link(record: str) -> str:
    """The file that holds the run of a folder such as results/table1_paper/cifar-10/mlr-snet/seed0."""
    folder = results.RESULTS / Path(record).relative_to("results")
    return f"../results/{records.file_of(folder).relative_to(results.RESULTS).as_posix()}"
