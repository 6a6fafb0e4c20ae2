"""Draws pictures of docs/pictures from committed records: `python docs/tools/pictures.py`."""

import json
import math
from pathlib import Path
from typing import Any

import matplotlib
import paper
import transfers
import universal

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from mlrsnet import pretrained
from mlrsnet.lab import records
from mlrsnet.lab.recipes import table1
from mlrsnet.lab.records import Record

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
RESULTS = ROOT / "results"
RUNS = RESULTS / "horizon_short" / "cifar-10"
ROWS = {
    "full-horizon": ("cifar10-patches, nothing tuned", "#000000", 2.4),
    "cosine-1": ("cosine, best LR of five", "#0072B2", 1.4),
    "cosine-0-1": ("cosine, the usual LR", "#E69F00", 1.4),
}
DOTS = {
    "universal": ("#000000", "o", 70),
    "universal-relative": ("#009E73", "D", 45),
    "cosine, usual LR": ("#E69F00", "s", 40),
    "Schedule-Free": ("#CC79A7", "^", 40),
    "Prodigy + cosine": ("#56B4E9", "v", 40),
}
CURVES = {
    "cifar-10-16x16-cnn-sgd": ("CIFAR-10 16x16, CNN", 1.0, "#0072B2"),
    "fashion-mnist-mlp-sgd": ("Fashion-MNIST, MLP", 1.0, "#E69F00"),
    "shakespeare-lstm-sgd": ("characters, LSTM with SGD", 1.0, "#CC79A7"),
    "shakespeare-transformer-adamw": ("transformer with AdamW, x 100", 100.0, "#009E73"),
    "resnet": ("CIFAR-10, ResNet-18", 1.0, "#000000"),
}


def draw(out: Path) -> None:
    """LR and test accuracy of three schedules of ResNet-18 on CIFAR-10, seed 0."""
    figure, (rates, accuracies) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for name, (label, colour, width) in ROWS.items():
        run = records.read(RUNS / name / "seed0")
        rates.plot(*_lrs(run), color=colour, linewidth=width / 1.5, label=label)
        points = [(line["epoch"], line["test_metric"]) for line in run.epochs if line.get("test_metric") is not None]
        accuracies.plot(*zip(*points, strict=True), color=colour, linewidth=width, label=label)
    rates.set(xlabel="epoch", title="learning rate")
    accuracies.set(xlabel="epoch", title="test accuracy (%)", ylim=(70, 95))
    accuracies.legend(frameon=False, loc="lower right")
    for axes in (rates, accuracies):
        _plain(axes)
    figure.savefig(out, dpi=150)


def draw_universal(out: Path) -> None:
    """What the shipped default comes to on eight tasks, beside the best decay of ten, and its LRs on five of them."""
    figure, (dots, rates) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", width_ratios=(1.25, 1))
    found = universal.outcomes()
    places = range(len(found), 0, -1)
    for name, (colour, marker, size) in DOTS.items():
        points = [
            (one.error / best.error, place)
            for row, place in zip(found.values(), places, strict=True)
            if (one := row.get(name)) and (best := row["best decay of ten"])
        ]
        dots.scatter(*zip(*points, strict=True), s=size, color=colour, marker=marker, label=name, zorder=3)
    dots.axvline(1.0, color="#0072B2", linewidth=1.4)
    dots.text(1.0, len(found) + 0.62, "best decay of ten, tuned", color="#0072B2", ha="center", fontsize=8)
    dots.set_yticks(list(places), list(found))
    dots.set_xscale("log")
    dots.set_xticks([0.8, 0.9, 1.0, 1.2, 1.5, 2.0], ["0.8", "0.9", "1", "1.2", "1.5", "2"])
    dots.minorticks_off()
    dots.set_xlabel("error or perplexity, in parts of that of the best decay (left is better)", x=0.35)
    dots.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.2, -0.17), ncols=3, columnspacing=1)
    for folder, (label, times, colour) in CURVES.items():
        where = universal.RESNET / "cifar-10-resnet-18-sgd" if folder == "resnet" else universal.SMALL / folder
        trace = json.loads((where / "universal" / "seed0" / "trace.json").read_text())
        last = trace["step"][-1]
        rates.plot(
            [s / last for s in trace["step"]], [times * lr for lr in trace["lr"]], label=label, color=colour, lw=1.3
        )
    rates.set(xlabel="progress", title="the LRs that universal chose", ylim=(0, None))
    rates.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, columnspacing=1)
    for axes in (dots, rates):
        _plain(axes)
    figure.savefig(out, dpi=150)


VARIANTS = {
    "meta-lr-0-0001": "#999999",
    "t-val-300": "#56B4E9",
    "the-authors-cell": "#009E73",
    "leaky": "#E69F00",
    "t-val-100": "#000000",
    "t-val-15": "#CC79A7",
    "meta-lr-0-01": "#0072B2",
    "t-val-3": "#D55E00",
}


def draw_algorithm_1(out: Path) -> None:
    """LRs of Algorithm 1 under eight settings; where they end, and what comes out, over meta LR x meta-updates."""
    figure, (rates, ends, outcomes) = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
    runs = RESULTS / "sensitivity_short" / "cifar-10"
    for name, colour in VARIANTS.items():
        trained = paper.finished(runs / name)
        points = [paper.meta_training(run) for run in trained]
        rates.plot(*_lrs(trained[0]), color=colour, linewidth=1.4, label=points[0].name)
        for axes, values in (
            (ends, [point.last_lr for point in points]),
            (outcomes, [point.accuracy for point in points]),
        ):
            axes.scatter([point.travel for point in points], values, color=colour, s=55, zorder=3)
    longer = paper.meta_trainings("table1_paper")
    others = {
        "60 epochs": (paper.meta_trainings("table1_short"), "^", 40),
        "200 epochs": ([run for run in longer if run.name != table1.THEIRS], "s", 40),
        "the authors' program, 200 epochs": ([run for run in longer if run.name == table1.THEIRS], "P", 55),
        "the authors' record, 200 epochs": ([paper.authors_meta_training()], "*", 90),
    }
    for label, (found, marker, size) in others.items():
        look = {"facecolors": "none", "edgecolors": "#000000", "marker": marker, "s": size, "zorder": 3}
        for axes, values in ((ends, [run.last_lr for run in found]), (outcomes, [run.accuracy for run in found])):
            axes.scatter([run.travel for run in found], values, label=label if found else None, **look)
    (cosine,) = paper.finished(RUNS / "cosine-0-1")
    outcomes.axhline(cosine.result["last"], color="#0072B2", linewidth=1.2)
    outcomes.text(0.01, 92.5, "cosine from 0.1, 30 epochs", color="#0072B2", ha="left", va="bottom", fontsize=8)
    rates.set(xlabel="epoch", title="LR that Algorithm 1 sets", yscale="log")
    figure.legend(*rates.get_legend_handles_labels(), frameon=False, fontsize=9, loc="outside lower center", ncols=8)
    ends.set(xlabel="meta LR x meta-updates", title="LR at the end", xscale="log", yscale="log")
    outcomes.set(xlabel="meta LR x meta-updates", title="test accuracy (%), last epoch", xscale="log")
    ends.legend(frameon=False, fontsize=8, loc="lower left", title="dots: 30 epochs", title_fontsize=8)
    for axes in (rates, ends, outcomes):
        _plain(axes)
    figure.savefig(out, dpi=150)


TABLE1 = {
    "universal": ("#000000", 2.0),
    "cosine-from-1-warm-up": ("#E69F00", 1.4),
    "cosine-warm-up": ("#F0C674", 1.4),
    "mlr-snet-the-authors-program": ("#009E73", 1.4),
    "multistep": ("#0072B2", 1.2),
    "authors-checkpoints": ("#56B4E9", 1.2),
    "mlr-snet-t-val-300": ("#CC79A7", 1.4),
    "mlr-snet": ("#D55E00", 1.4),
    "sgdr": ("#BBBBBB", 1.0),
}


def draw_table1(out: Path) -> None:
    """LR and test accuracy of 200 epochs of ResNet-18 on CIFAR-10, seed 0."""
    figure, (rates, accuracies) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for row, (colour, width) in TABLE1.items():
        run = records.read(RESULTS / "table1_paper" / "cifar-10" / row / "seed0")
        label = run.data["labels"]["row"] + ("" if run.ended else ", stopped")
        rates.plot(*_lrs(run), color=colour, linewidth=width, label=label)
        points = [(line["epoch"], line["test_metric"]) for line in run.epochs]
        accuracies.plot(*zip(*points, strict=True), color=colour, linewidth=width)
    rates.set(xlabel="epoch", title="learning rate", yscale="log", ylim=(1e-4, 10))
    accuracies.set(xlabel="epoch", title="test accuracy (%)", ylim=(70, 96))
    figure.legend(*rates.get_legend_handles_labels(), frameon=False, fontsize=9, loc="outside lower center", ncols=5)
    for axes in (rates, accuracies):
        _plain(axes)
    figure.savefig(out, dpi=150)


TRANSFERS = {
    "Universal": ("#000000", 2.0),
    "Authors' checkpoints": ("#56B4E9", 1.4),
    "MLR-SNet, shipped": ("#CC79A7", 1.4),
    "MLR-SNet, shipped, from text": ("#D55E00", 1.4),
    "Universal, over Adam": ("#009E73", 1.4),
    "Universal, relative": ("#7F3C8D", 1.8),
    "Universal, relative, over Adam": ("#E69F00", 1.4),
}
"""The others are hand-designed: the best of them and the rest."""


def draw_transfers(out: Path) -> None:
    """Test results of learned schedules where they were not learned, and of hand-designed ones, seed 0."""
    columns = transfers.columns()
    figure, panels = plt.subplots(2, math.ceil(len(columns) / 2), figsize=(12, 6.2), layout="constrained")
    labels: dict[str, Any] = {}
    for column, axes in zip(columns, panels.flat, strict=False):
        best = column.best(transfers.by_hand(column))
        for row, (run, *_) in sorted(column.runs.items(), key=lambda item: item[0] in TRANSFERS):
            other = ("best hand-designed", "#0072B2", 1.4) if row == best else ("other hand-designed", "#BBBBBB", 1.0)
            label, colour, width = (row, *TRANSFERS[row]) if row in TRANSFERS else other
            points = [(line["epoch"], line["test_metric"]) for line in run.epochs]
            (labels[label],) = axes.plot(*zip(*points, strict=True), color=colour, linewidth=width)
        ends = [end for row in column.runs if (end := column.mean(row)) is not None]
        if column.metric == "test perplexity":
            axes.set(yscale="log", ylim=(0.95 * min(ends), 800))
            axes.set_yticks([100, 200, 400, 800], ["100", "200", "400", "800"])
            axes.minorticks_off()
        else:
            axes.set(ylim=(min(0.8 * max(ends), sorted(ends)[1] - 3), 1.02 * max(ends)))
        axes.set_title(f"{column.name}: {column.metric}", fontsize=9)
        _plain(axes)
    for axes in panels[-1]:
        axes.set_xlabel("epoch")
    names = [*TRANSFERS, "best hand-designed", "other hand-designed"]
    there = [name for name in names if name in labels]
    figure.legend(
        [labels[name] for name in there], there, frameon=False, fontsize=9, loc="outside lower center", ncols=4
    )
    figure.savefig(out, dpi=150)


NETWORKS = {"lstm": ("LSTM", "#D55E00"), "mlp": ("MLP", "#0072B2")}
LEARNED_ON = {
    "meta-training-cifar-10": ("CIFAR-10, ResNet-18", "test accuracy (%)", (70, 95)),
    "meta-training-penn-treebank": ("Penn Treebank, 2-layer LSTM", "test perplexity", (75, 200)),
}
"""Task, metric, and what is shown of it."""


def draw_networks(out: Path) -> None:
    """LRs of Algorithm 1 with two kinds of schedule networks, and what comes out, under every seed."""
    figure, panels = plt.subplots(1, 4, figsize=(12, 3.2), layout="constrained")
    for (folder, words), (rates, outcomes) in zip(LEARNED_ON.items(), panels.reshape(2, 2), strict=True):
        task, metric, limits = words
        for row, (label, colour) in NETWORKS.items():
            for run in paper.finished(RESULTS / "lstm_or_mlp_short" / folder / row):
                rates.plot(*_lrs(run), color=colour, linewidth=1.2, label=label if run.spec["seed"] == 0 else None)
                points = [(line["epoch"], line["test_metric"]) for line in run.epochs]
                outcomes.plot(*zip(*points, strict=True), color=colour, linewidth=1.2)
        rates.set(xlabel="epoch", yscale="log")
        rates.set_title(f"{task}: LR", fontsize=9)
        outcomes.set(xlabel="epoch", ylim=limits)
        outcomes.set_title(metric, fontsize=9)
    panels[0].legend(frameon=False)
    for axes in panels:
        _plain(axes)
    figure.savefig(out, dpi=150)


WIDTHS = {"fixed": "#009E73", "multistep": "#E69F00", "sgdr": "#0072B2", "mlr-snet": "#000000"}


def draw_width(out: Path) -> None:
    """Training and test loss along random rays from where trainings ended: every ray, one colour a schedule."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for row, colour in WIDTHS.items():
        run = records.read(RESULTS / "width_short" / "cifar-100" / row / "seed0")
        for axes, part in zip(panels, ("train", "test"), strict=True):
            for number, ray in enumerate(run.data["rays"][part]):
                label = run.data["labels"]["row"] if number == 0 else None
                axes.plot(run.data["rays"]["distance"], ray, color=colour, linewidth=0.9, label=label)
            axes.set(xlabel="distance from the solution", title=f"{part} loss", yscale="log")
            _plain(axes)
    for axes, ticks in zip(panels, ([0.1, 0.2, 0.5, 1, 2, 4], [1, 1.5, 2, 3, 4]), strict=True):
        axes.minorticks_off()
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    figure.legend(
        *panels[0].get_legend_handles_labels(), frameon=False, fontsize=9, loc="outside lower center", ncols=4
    )
    figure.savefig(out, dpi=150)


def _lrs(run: Record) -> tuple[list[float], list[float]]:
    """Epochs and LRs."""
    return [step / run.data["steps_per_epoch"] for step in run.trace["step"]], run.trace["lr"]


def draw_map(out: Path) -> None:
    """LRs of the shipped default where the loss stays what it is."""
    pretrained.load("universal").plot_map(out)


def _plain(axes: plt.Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


if __name__ == "__main__":
    draw(PICTURES / "lr_curves.png")
    draw_universal(PICTURES / "universal.png")
    draw_map(PICTURES / "universal_map.png")
    draw_algorithm_1(PICTURES / "algorithm_1.png")
    draw_table1(PICTURES / "table1.png")
    draw_transfers(PICTURES / "transfers.png")
    draw_networks(PICTURES / "lstm_or_mlp.png")
    draw_width(PICTURES / "width.png")
