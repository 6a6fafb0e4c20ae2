"""The shipped full-horizon schedules: what they were learned from, how far learning took them, and what they read."""

import math
from pathlib import Path
from statistics import mean, median
from typing import Any

from experiments import drawing, markdown, results
from mlrsnet import Schedule
from mlrsnet_lab.horizon.comparison import log_gaps

RECORDS = {
    "universal-lstm": "universal_lstm/universal-lstm.json",
    "cifar10-patches": "horizon/cifar10-patches.json",
}
UNIVERSAL = "universal-lstm"


def learned_from() -> list[str]:
    """Generations, trainings and seconds; mean loss of held-out trainings before and after."""
    lines = []
    for name, path in RECORDS.items():
        record = results.data(path)
        spec, first, last = record["spec"], record["comparisons"][0], record["comparisons"][-1]
        before, after = _losses(first["learned"], last["learned"])
        lines.append(
            [
                f"`{name}`",
                f"{len(record['generations'])} of {spec['generations']}",
                str(spec["tasks"] * spec["members"]),
                f"{record['seconds']:.0f}",
                str(len(last["learned"])),
                before,
                f"{after}, at generation {last['number']}",
                f"{100 * last['summary']['gap to cosine, one LR chosen on these tasks']:+.1f} %",
                f"[record](../results/{path})",
            ]
        )
    heads = ["schedule", "generations", "trainings in each", "seconds on an H200", "held-out trainings"]
    return markdown.table([*heads, "mean loss before learning", "after", "against the best cosine", ""], lines)


def _losses(first: list[float | None], last: list[float | None]) -> tuple[str, str]:
    """Mean losses over the trainings that diverged in neither, and how many diverged."""
    both = [(one, two) for one, two in zip(first, last, strict=True) if one is not None and two is not None]
    told = []
    for found, side in zip((first, last), zip(*both, strict=True), strict=True):
        diverged = found.count(None)
        told.append(f"{mean(side):.4f}" + (f", {diverged} diverged" if diverged else ""))
    return told[0], told[1]


def progress() -> list[str]:
    """The meta-training of `universal-lstm`: mean and median gap to the best of 18 rivals of each held-out training."""
    record = results.data(RECORDS[UNIVERSAL])
    rivals = _rivals(record)
    best = [min(map(_number, found)) for found in zip(*rivals.values(), strict=True)]
    lines = [[str(one["number"]), _gap(one["learned"], best)] for one in record["comparisons"]]
    single = min(rivals, key=lambda name: mean(log_gaps([_number(one) for one in rivals[name]], best)))
    lines.append([f"the best LR for all, {single}", _gap(rivals[single], best)])
    return markdown.table(["mean, median gap after generation", UNIVERSAL], lines)


def _rivals(record: dict[str, Any]) -> dict[str, list[float | None]]:
    """Every rival's fitness on every held-out training."""
    rivals = record["rivals"]
    return {
        f"{kind} {lr:g}": [row[place] for row in rows]
        for kind, rows in rivals["fitness"].items()
        for place, lr in enumerate(rivals["grid"])
    }


def _gap(found: list[float | None], best: list[float]) -> str:
    each = log_gaps([_number(one) for one in found], best)
    return f"{mean(each):.3f}, {median(each):.3f}"


def _number(value: float | None) -> float:
    """A record's number; a training that diverged has none."""
    return float(value) if isinstance(value, int | float) else math.inf


STEPS, CLASSES = 100, 10
PROGRESS = {"after 5 % of the training": 5, "halfway": 50, "after 90 %": 90}


def reads(name: str, losses: tuple[float, ...]) -> list[str]:
    """LRs for SGD; a loss of 1 is that of guessing, log(classes)."""
    schedule, guessing = Schedule.load(name), math.log(CLASSES)
    gamma = schedule.card.gamma(guessing, CLASSES)
    curves = [schedule.simulate([loss * guessing] * STEPS, gamma, num_classes=CLASSES) for loss in losses]
    lines = ([words, *(f"{curve[step]:.2f}" for curve in curves)] for words, step in PROGRESS.items())
    return markdown.table([f"LR of `{name}` at a loss of", *(f"{loss:g} x log(classes)" for loss in losses)], lines)


def universal_lstm() -> list[str]:
    """Version 1 of the default."""
    return reads("universal-lstm", (2, 1, 0.6, 0.1))


def patches() -> list[str]:
    """The schedule that was learned from patch networks."""
    return reads("cifar10-patches", (2, 1, 0.1))


def draw_map(out: Path) -> None:
    """LRs of version 1 over loss and progress."""
    Schedule.load("universal-lstm").plot_map(out)


RESNET = "CIFAR-10, ResNet-18, SGD"
CURVES = {
    "Shakespeare, transformer, AdamW": ("transformer with\nAdamW: LR x 100", 100.0, "#009E73", (0.40, 1.16)),
    "CIFAR-10 16x16, CNN, SGD": ("CIFAR-10 16x16, CNN", 1.0, "#0072B2", (0.30, 1.07)),
    "Shakespeare, LSTM, SGD": ("LSTM, SGD", 1.0, "#CC79A7", (0.68, 1.66)),
    RESNET: ("CIFAR-10, ResNet-18", 1.0, "#000000", (0.02, 1.88)),
    "Fashion-MNIST, MLP, SGD": ("Fashion-MNIST, MLP", 1.0, "#E69F00", (0.32, 0.33)),
}
"""Columns whose LRs are drawn: label, factor, colour, and where the label stands."""


def draw_lrs(out: Path) -> None:
    """LRs that version 1 chose, seed 0."""
    figure, axes = drawing.new(1, 1, (6, 4))
    for column, (label, times, colour, place) in CURVES.items():
        folder = "universal_lstm_paper" if column == RESNET else "universal_lstm_short"
        trace = results.run(folder, column, "Universal LSTM").trace
        x, y = [step / trace["step"][-1] for step in trace["step"]], [times * lr for lr in trace["lr"]]
        axes.plot(x, y, color=colour, linewidth=1.2)
        axes.text(*place, label, color=colour, fontsize=9)
    axes.set(xlabel="progress of the training", ylabel="LR", ylim=(0, 2), xlim=(0, 1))
    drawing.plain(axes)
    drawing.save(figure, out)
