"""Seconds an epoch: every method in the lab's loop, the same training in a plain one, and a large network."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import paper
from beside import NOTHING

from mlrsnet.lab.recipes import table1 as table1_recipe
from mlrsnet.lab.recipes import time as time_recipe
from mlrsnet.lab.recipes.base import slug
from mlrsnet.lab.report.numbers import number, short_text

PLAIN_STEPS = ("Fixed", "MultiStep", "Exponential", "SGDR")
"""Methods that differ in the LR alone."""

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


def times(column: Path, rows: Sequence[str]) -> dict[str, Time]:
    """By row; a run that was stopped has seconds too."""
    found = {}
    for row in rows:
        runs = paper.runs(column / slug(row))
        timed = [(run, one) for run in runs if (one := number(run.data["timing"].get("seconds_per_epoch"))) is not None]
        if timed:
            devices = dict.fromkeys(run.data["device"] for run, _ in timed)
            epochs = sum(len(run.epochs) for run, _ in timed)
            found[row] = Time(median(one for _, one in timed), epochs, len(timed), ", ".join(devices))
    return found


def ratios(found: dict[str, Time]) -> dict[str, float]:
    """To the median of those whose step is the same plain one; empty where none of them was run."""
    plain = [found[row].seconds for row in PLAIN_STEPS if row in found]
    return {row: time.seconds / median(plain) for row, time in found.items()} if plain else {}


def _told(found: dict[str, Time]) -> list[str]:
    """A row a method, and how it compares with a plain step where several were run."""
    if not found:
        return NOTHING
    devices = ", ".join(dict.fromkeys(time.device for time in found.values()))
    compared = ratios(found) if len(found) > 1 else {}
    heads = [devices, "seconds an epoch", *(["against a plain step"] if compared else []), "epochs, runs"]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for row, time in found.items():
        ratio = [f"{compared[row]:.2f}"] if compared else []
        lines.append(f"| {' | '.join((row, short_text(time.seconds), *ratio, f'{time.epochs}, {time.runs}'))} |")
    return lines


def timing() -> list[str]:
    """The methods, and what the same network takes in a plain loop: measured apart, so compared with its own neighbour."""
    record = json.loads((paper.RESULTS / "loop" / "h200.json").read_text())
    found, device = record["gpu"], record["machine"]["device"]
    lines = [f"| {device}, measured in turns | seconds an epoch | against the lab's |", "| --- | --- | --- |"]
    for name, words in PLAIN.items():
        lines.append(f"| {words} | {found[f'{name}_s']:.2f} | {found[f'{name}_s'] / found['cosine_s']:.2f} |")
    return [*_told(methods()), "", *lines]


def methods() -> dict[str, Time]:
    """Every method of the paper's figure, alone on the GPU."""
    rows = [cell.row for cell in time_recipe.cells("short")]
    return times(paper.place("time", "short") / slug(time_recipe.COLUMN), rows)


def large() -> list[str]:
    """WideResNet-28-10 on CIFAR-100, a few epochs of Table 1 at its own scale, alone on the GPU."""
    return _told(times(paper.RESULTS / "large" / "cifar-100", list(table1_recipe.PAPER["CIFAR-100"])))
