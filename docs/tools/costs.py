"""What of every recipe has been run, and what the rest would cost on one H200."""

import json
from dataclasses import replace
from functools import cache
from statistics import median

import paper
import timing
import torch
from torch.utils.flop_counter import FlopCounterMode

from mlrsnet.lab import records
from mlrsnet.lab.jobs import Job
from mlrsnet.lab.models import build_image
from mlrsnet.lab.recipes import RECIPES, STUDIES, Cell, Recipe
from mlrsnet.lab.spec import RunSpec

RESULTS = paper.RESULTS
LOOP = json.loads((RESULTS / "loop" / "h200.json").read_text())["gpu"]
"""Seconds that ResNet-18 takes for 49,000 pictures of 32x32, and ratios of other loops to it."""

PICTURES = {  # training pictures, their size, classes
    "cifar10": (49_000, 32, 10),
    "cifar100": (49_000, 32, 100),
    "svhn": (72_257, 32, 10),
    "mnist": (59_000, 28, 10),
    "tinyimagenet": (99_000, 64, 200),
    "imagenet": (1_281_167, 224, 1000),
    "cifar10-c": (50_000, 32, 10),  # five severities
    "cifar100-c": (50_000, 32, 100),
}


OWN_LOOPS = {"l4": "L4", "hd": "HD", "rtho": "RTHO"}
"""Schedules whose steps are not plain ones, and their rows."""


@cache
def arithmetic(model: str, options: str, size: int, classes: int) -> float:
    """Operations of a forward pass."""
    with torch.device("meta"), FlopCounterMode(display=False) as count, torch.no_grad():
        build_image(model, (3, size, size), classes, **json.loads(options)).eval()(torch.zeros(1, 3, size, size))
    return float(count.get_total_flops())


@cache
def text_epoch() -> float:
    """Seconds that the 2-layer LSTM takes for Penn Treebank, where up to three of them shared the GPU."""
    folders = (RESULTS / "table3_short" / "2-layer-lstm").iterdir()
    runs = [run for folder in folders for run in paper.finished(folder) if run.spec["schedule"] not in OWN_LOOPS]
    return median(run.data["timing"]["seconds_per_epoch"] for run in runs)


def method(spec: RunSpec) -> float:
    """A step in plain ones; of methods with a loop of their own as measured with ResNet-18."""
    if spec.schedule == "mlr-snet":
        return float(1 + (LOOP["meta_step_over_plain_step"] - 1) / spec.schedule_options["every"])
    return _own_loops().get(spec.schedule, 1.0)


@cache
def _own_loops() -> dict[str, float]:
    measured = timing.ratios(timing.methods())
    return {schedule: measured[row] for schedule, row in OWN_LOOPS.items()}


def seconds(spec: RunSpec) -> float:
    """By arithmetic from ResNet-18's time, never less than that (small networks wait for memory); text from its own."""
    factor = spec.epochs * method(spec)
    if spec.task not in PICTURES:
        return factor * text_epoch() * spec.model_options["layers"] / 2
    count, size, classes = PICTURES[spec.task]
    count *= spec.task_options.get("fraction", 1.0)
    relative = arithmetic(spec.model, json.dumps(spec.model_options), size, classes)
    return factor * LOOP["cosine_s"] * count / 49_000 * max(1.0, relative / arithmetic("resnet18", "{}", 32, 10))


def state(name: str, scale: str) -> tuple[str, str]:
    """How many of the trainings there are, and how long the others would take."""
    recipe, folder = RECIPES[name], paper.place(name, scale)
    cells = _cells(recipe, scale)
    runs = [(cell, seed) for cell in cells for seed in recipe.seeds]
    runs += [(one.cell, one.seed) for cell in cells for one in Job(cell, 0, 0, 0).trials(recipe.seeds[0])]
    there = [records.read(path) for path in records.find(folder)] if folder.is_dir() else []
    ended = {record.folder for record in there if record.ended}
    missing = [cell for cell, seed in runs if folder / cell.folder(seed) not in ended]
    done = len(runs) - len(missing)
    told = f"[{done} of {len(runs)}](../results/{folder.name})" if done else "not run"
    return told, _time(missing)


def _cells(recipe: Recipe, scale: str) -> list[Cell]:
    """All of them: what cannot be run for want of the authors' files costs as much as its neighbours."""
    cells = recipe.cells(scale)
    specs = {cell.column: cell.spec for cell in cells if cell.spec is not None}
    return [replace(cell, spec=cell.spec or specs[cell.column]) for cell in cells]


def recipes() -> list[str]:
    """A row for every recipe."""
    lines = [
        "| recipe | | trained at `short` | the rest | trained at `paper` | the rest |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, recipe in RECIPES.items():
        if name != "universal":  # its scale short is for a CPU, and has a table of its own
            lines.append(
                f"| `{name}` | {recipe.title} | {' | '.join((*state(name, 'short'), *state(name, 'paper')))} |"
            )
    for name, study in STUDIES.items():
        lines.append(f"| `{name}` | {study.title} | computed, not trained | | [all](../results/{name}) | |")
    return lines


def _time(cells: list[Cell]) -> str:
    total = sum(seconds(cell.spec) for cell in cells if cell.spec is not None)
    if not total:
        return ""
    return f"{float(f'{total / 3600:.2g}'):g} h" if total >= 3600 else f"{float(f'{total / 60:.2g}'):g} min"
