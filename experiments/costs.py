"""How much of every recipe has been run, and what the rest would cost on one H200.

An epoch costs what the fastest recorded epoch of the same network on pictures of the same size did, per picture. That is an upper
bound where runs shared the GPU. A network without a record is estimated from ResNet-18 by its arithmetic.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from experiments import markdown, results, speed
from mlrsnet.lab import records
from mlrsnet.lab.jobs import Job
from mlrsnet.lab.models import build_image
from mlrsnet.lab.recipes import RECIPES, STUDIES, Cell, Recipe
from mlrsnet.lab.records import Record
from mlrsnet.lab.spec import RunSpec

GPU = "NVIDIA H200"
TEXT = "ptb"
PICTURES = {  # training pictures if no record says otherwise, their size, classes
    "cifar10": (49_000, 32, 10),
    "cifar100": (49_000, 32, 100),
    "svhn": (72_257, 32, 10),
    "mnist": (59_000, 28, 10),
    "tinyimagenet": (99_000, 64, 200),
    "imagenet": (1_281_167, 224, 1000),
    "cifar10-c": (50_000, 32, 10),  # five severities
    "cifar100-c": (50_000, 32, 100),
}
SIZES = ("layers", "hidden", "cells", "filters", "width", "depth")
"""Options that change how much a network computes."""

OWN_LOOPS = {"l4": "L4", "hd": "HD", "rtho": "RTHO"}
"""Schedules whose steps are not plain ones, and their rows in the table of times."""


@cache
def plain_runs() -> list[Record]:
    """Trainings on the GPU with plain steps, on data and pictures as they are."""
    found = [run.record for run in results.report("").runs]
    return [run for run in found if run.data.get("device") == GPU and _is_plain(run) and _seconds(run)]


def _is_plain(run: Record) -> bool:
    whole = not {"size", "fraction"} & run.spec["task_options"].keys()
    return whole and run.spec["schedule"] not in (*OWN_LOOPS, "mlr-snet")


def _seconds(run: Record) -> float:
    return float(run.data["timing"].get("seconds_per_epoch") or 0)


def network(model: str, options: dict[str, Any]) -> str:
    """A network and the options that set its size, as a key."""
    sizes = {key: value for key, value in options.items() if key in SIZES}
    return f"{model} {json.dumps(sizes, sort_keys=True)}"


@cache
def per_picture() -> dict[tuple[str, int], float]:
    """Seconds per training picture of the fastest recorded epoch, by network and size of the pictures."""
    found: dict[tuple[str, int], float] = {}
    for run in plain_runs():
        if run.spec["task"] in PICTURES:
            key = network(run.spec["model"], run.spec["model_options"]), PICTURES[run.spec["task"]][1]
            one = _seconds(run) / run.data["task"]["train"]
            found[key] = min(one, found.get(key, one))
    return found


@cache
def pictures(task: str) -> int:
    """How many there are to train on: as recorded, which may be a subset; else as published."""
    recorded = [int(run.data["task"]["train"]) for run in plain_runs() if run.spec["task"] == task]
    return max(recorded, default=PICTURES[task][0])


@cache
def arithmetic(model: str, options: str, size: int, classes: int) -> float:
    """Operations of a forward pass."""
    with torch.device("meta"), FlopCounterMode(display=False) as count, torch.no_grad():
        build_image(model, (3, size, size), classes, **json.loads(options)).eval()(torch.zeros(1, 3, size, size))
    return float(count.get_total_flops())


@cache
def text_epoch() -> dict[int, float]:
    """Seconds of the fastest recorded epoch of Penn Treebank, by the layers of the LSTM."""
    runs = [run for run in plain_runs() if run.spec["task"] == TEXT]
    layers = {run.spec["model_options"]["layers"] for run in runs}
    return {n: min(_seconds(run) for run in runs if run.spec["model_options"]["layers"] == n) for n in sorted(layers)}


def method(spec: RunSpec) -> float:
    """A step in plain steps; methods with a loop of their own as measured with ResNet-18."""
    if spec.schedule == "mlr-snet":
        loop = results.data("loop/h200.json")["gpu"]
        return float(1 + (loop["meta_step_over_plain_step"] - 1) / spec.schedule_options["every"])
    return _own_loops().get(spec.schedule, 1.0)


@cache
def _own_loops() -> dict[str, float]:
    measured = speed.ratios(speed.methods())
    return {schedule: measured[row] for schedule, row in OWN_LOOPS.items()}


def seconds(spec: RunSpec) -> float:
    """Of a whole training."""
    factor = spec.epochs * method(spec)
    if spec.task in PICTURES:
        count = pictures(spec.task) * spec.task_options.get("fraction", 1.0)
        return float(factor * count * seconds_per_picture(spec))
    layers, known = spec.model_options["layers"], text_epoch()
    nearest = min(known, key=lambda n: abs(n - layers))
    return factor * known[nearest] * layers / nearest


def seconds_per_picture(spec: RunSpec) -> float:
    """Measured; else by arithmetic from ResNet-18, and never less than it: small networks wait for memory."""
    _, size, classes = PICTURES[spec.task]
    if measured := per_picture().get((network(spec.model, spec.model_options), size)):
        return measured
    relative = arithmetic(spec.model, json.dumps(spec.model_options), size, classes) / arithmetic(
        "resnet18", "{}", 32, 10
    )
    return per_picture()["resnet18 {}", 32] * max(1.0, relative)


def state(name: str, scale: str) -> tuple[str, str]:
    """How many of the trainings there are, and how long the others would take."""
    recipe, folder = RECIPES[name], results.place(name, scale)
    planned = list(_planned(recipe, scale))
    place = results.RESULTS / folder
    ended = {run.folder for run in records.runs(place) if run.ended} if place.is_dir() else set()
    missing = [cell for cell, seed in planned if place / cell.folder(seed) not in ended]
    done = len(planned) - len(missing)
    return f"[{done} of {len(planned)}](../results/{folder})" if done else results.NOT_RUN, _time(missing)


def _planned(recipe: Recipe, scale: str) -> Iterator[tuple[Cell, int]]:
    """Every training of a recipe, trials of settings included."""
    for cell in _cells(recipe, scale):
        yield from ((cell, seed) for seed in recipe.seeds)
        yield from ((one.cell, one.seed) for one in Job(cell, 0, 0, 0).trials(recipe.seeds[0]))


def _cells(recipe: Recipe, scale: str) -> list[Cell]:
    """All of them: a row that needs the authors' files costs as much as its neighbours."""
    cells = recipe.cells(scale)
    specs = {cell.column: cell.spec for cell in cells if cell.spec is not None}
    return [replace(cell, spec=cell.spec or specs[cell.column]) for cell in cells]


def recipes() -> list[str]:
    """A row for every recipe, then how the times were estimated."""
    lines = []
    for name, recipe in RECIPES.items():
        if "short" not in recipe.for_cpu:  # else it has a table of its own
            lines.append([f"`{name}`", recipe.title, *state(name, "short"), *state(name, "paper")])
    for name, study in STUDIES.items():
        lines.append([f"`{name}`", study.title, "computed, not trained", "", f"[all](../results/{name})", ""])
    heads = ["recipe", "", "trained at `short`", "the rest", "trained at `paper`", "the rest"]
    return [*markdown.table(heads, lines), "", _about()]


def _about() -> str:
    subsets = [f"{task} has {pictures(task):,}" for task, (full, _, _) in PICTURES.items() if pictures(task) < full]
    smaller = f" Data as recorded: {', '.join(subsets)} training pictures." if subsets else ""
    return (
        "Times are estimates for one H200, one training after the other: the fastest recorded epoch of the same network and size "
        "of pictures, per picture, which is too high where runs shared the GPU; a network without a record by its arithmetic, "
        f"from ResNet-18; L4, HD and RTHO by their measured ratio to a plain step.{smaller}"
    )


def _time(cells: list[Cell]) -> str:
    total = sum(seconds(cell.spec) for cell in cells if cell.spec is not None)
    if not total:
        return ""
    return f"{float(f'{total / 3600:.2g}'):g} h" if total >= 3600 else f"{float(f'{total / 60:.2g}'):g} min"
