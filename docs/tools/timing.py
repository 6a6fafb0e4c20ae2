"""Seconds an epoch: every method in the lab's loop, the same training in a plain one, and a large network."""

import json
from dataclasses import dataclass
from statistics import median

import paper
from beside import NOTHING

from mlrsnet.lab import records
from mlrsnet.lab.recipes import RECIPES
from mlrsnet.lab.recipes.base import slug
from mlrsnet.lab.report.numbers import number, short_text

PLAIN = {
    "cosine": "the lab's loop, one CUDA graph a step",
    "eager_fp32": "plain eager loop, DataLoader, fp32",
    "eager_bf16": "plain eager loop, DataLoader, bf16",
}
"""What `benchmarks/loop.py` calls them."""


@dataclass(frozen=True)
class Time:
    """Median seconds of an epoch, over a run's epochs and then over runs; how many epochs of how many runs; where."""

    seconds: float
    epochs: int
    runs: int
    device: str


def times(recipe: str, scale: str, column: str) -> dict[str, Time]:
    """By row; a run that was stopped has seconds too."""
    found = {}
    for cell in RECIPES[recipe].cells(scale):
        folder = paper.RESULTS / f"{recipe.replace('-', '_')}_{scale}" / slug(column) / slug(cell.row)
        runs = [records.read(path.parent) for path in sorted(folder.glob("seed*/record.json"))]
        timed = [(run, one) for run in runs if (one := number(run.data["timing"].get("seconds_per_epoch"))) is not None]
        if cell.column == column and timed:
            devices = dict.fromkeys(run.data["device"] for run, _ in timed)
            epochs = sum(len(run.epochs) for run, _ in timed)
            found[cell.row] = Time(median(one for _, one in timed), epochs, len(timed), ", ".join(devices))
    return found


def seconds(recipe: str, scale: str, column: str, beside: str = "Fixed") -> list[str]:
    """A row a method, and how it compares with one of them where that was run."""
    found = times(recipe, scale, column)
    if not found:
        return NOTHING
    devices = ", ".join(dict.fromkeys(time.device for time in found.values()))
    lines = [f"| {devices} | seconds an epoch | against {beside} | epochs, runs |", "| --- | --- | --- | --- |"]
    base = found[beside].seconds if beside in found else 0.0
    for row, time in found.items():
        ratio = f"{time.seconds / base:.2f}" if base else ""
        lines.append(f"| {row} | {short_text(time.seconds)} | {ratio} | {time.epochs}, {time.runs} |")
    return lines


def timing() -> list[str]:
    """The methods, and what the same network takes in a plain loop: measured apart, so compared with its own neighbour."""
    record = json.loads((paper.RESULTS / "loop" / "h200.json").read_text())
    found, device = record["gpu"], record["machine"]["device"]
    lines = [f"| {device}, measured in turns | seconds an epoch | against the lab's |", "| --- | --- | --- |"]
    for name, words in PLAIN.items():
        lines.append(f"| {words} | {found[f'{name}_s']:.2f} | {found[f'{name}_s'] / found['cosine_s']:.2f} |")
    return [*seconds("time", "short", "CIFAR-10"), "", *lines]


def large() -> list[str]:
    """WideResNet-28-10 on CIFAR-100, a few epochs of Table 1 at its own scale."""
    return seconds("table1", "paper", "CIFAR-100")
