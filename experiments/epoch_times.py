"""How long an epoch takes on one H200, from the records of trainings.

Every training that was recorded with the same network, the same size of pictures and the same kind of step says how long an example
takes; the fastest counts, because the others shared the GPU. What has no record is estimated from what has one:

- L4, HD and RTHO from a plain step, by their ratio on text or on pictures; MLR-SNet by its number of meta-updates
- an LSTM from the one whose number of layers is nearest
- a network with depthwise convolutions, which wait for memory, from the recorded one that is nearest in what its convolutions write
- any other network from ResNet-18, by its arithmetic
"""

import json
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from experiments import results
from mlrsnet_lab.models import build_image
from mlrsnet_lab.records import Record
from mlrsnet_lab.spec import RunSpec

GPU = "NVIDIA H200"
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
TEXT = "ptb"
OTHER_DATA = {"size", "fraction", "leaky"}
"""Options that change the pictures: their size and number, or that validation pictures are trained on, too."""

SIZES = ("layers", "hidden", "cells", "filters", "width", "depth")
"""Options that change how much a network computes."""

PLAIN, META, OWN_LOOPS = "plain", "mlr-snet", ("l4", "hd", "rtho")
"""Kinds of steps: schedules that only set the LR, Algorithm 1, and those with a loop of their own."""


class Work(NamedTuple):
    """What decides how long an example takes: kind of step, network with its options of size, size of pictures (0 for text)."""

    kind: str
    network: str
    size: int


RESNET18, LSTM = Work(PLAIN, "resnet18 {}", 32), Work(PLAIN, 'lstm {"layers": 2}', 0)
"""Recorded with every kind of step."""


def work(task: str, model: str, options: dict[str, Any], schedule: str) -> Work:
    """Of a training.

    >>> work("ptb", "lstm", {"layers": 2, "dropout": 0.5}, "hd")
    Work(kind='hd', network='lstm {"layers": 2}', size=0)
    """
    kind = schedule if schedule in (META, *OWN_LOOPS) else PLAIN
    sizes = {key: value for key, value in options.items() if key in SIZES}
    size = PICTURES[task][1] if task in PICTURES else 0
    return Work(kind, f"{model} {json.dumps(sizes, sort_keys=True)}", size)


@cache
def recorded() -> list[Record]:
    """Trainings on the GPU with a dataset of the paper, as it is."""
    found = [run.record for run in results.report("").runs]
    return [run for run in found if run.data.get("device") == GPU and _is_usual(run) and _seconds(run)]


def _is_usual(run: Record) -> bool:
    return run.spec["task"] in (*PICTURES, TEXT) and not OTHER_DATA & run.spec["task_options"].keys()


def _seconds(run: Record) -> float:
    return float(run.data["timing"].get("seconds_per_epoch") or 0)


def _work_of(run: Record) -> Work:
    return work(*(run.spec[key] for key in ("task", "model", "model_options", "schedule")))


@cache
def fastest() -> dict[Work, float]:
    """Seconds per example, a picture or a word, of the fastest recorded epoch. Not of Algorithm 1: it depends on T_val."""
    found: dict[Work, float] = {}
    for run in recorded():
        key, one = _work_of(run), _seconds(run) / run.data["task"]["train"]
        if key.kind != META:
            found[key] = min(one, found.get(key, one))
    return found


@cache
def examples(task: str) -> int:
    """How many there are to train on: as recorded, which may be a subset; else as published."""
    counts = [int(run.data["task"]["train"]) for run in recorded() if run.spec["task"] == task]
    return max(counts) if counts else PICTURES[task][0]


@cache
def meta_update(size: int) -> float:
    """What a meta-update adds to a step, in plain steps: measured with ResNet-18; for text, from recorded trainings."""
    if size:
        return float(results.data("loop/h200.json")["gpu"]["meta_step_over_plain_step"]) - 1
    runs = [run for run in recorded() if _work_of(run) == LSTM._replace(kind=META)]
    plain = fastest()[LSTM] * examples(TEXT)
    return min((_seconds(run) / plain - 1) * run.spec["schedule_options"]["every"] for run in runs)


def seconds(spec: RunSpec) -> float:
    """Of a whole training."""
    count = examples(spec.task) * spec.task_options.get("fraction", 1.0)
    return float(spec.epochs * count * seconds_per_example(spec))


def seconds_per_example(spec: RunSpec) -> float:
    """As recorded; else estimated from what was."""
    wanted, known = work(spec.task, spec.model, spec.model_options, spec.schedule), fastest()
    if wanted in known:
        return known[wanted]
    plain = known.get(wanted._replace(kind=PLAIN)) or (_of_network(spec) if wanted.size else _of_lstm(spec))
    if wanted.kind == PLAIN:
        return plain
    if wanted.kind == META:
        return plain * (1 + meta_update(wanted.size) / spec.schedule_options["every"])
    usual = RESNET18 if wanted.size else LSTM
    return plain * known[usual._replace(kind=wanted.kind)] / known[usual]


def _of_lstm(spec: RunSpec) -> float:
    """Time grows with the layers."""
    layers = {json.loads(one.network.split(" ", 1)[1])["layers"]: t for one, t in _plain_of_size(0).items()}
    nearest = min(layers, key=lambda count: abs(count - spec.model_options["layers"]))
    return layers[nearest] * spec.model_options["layers"] / nearest


def _of_network(spec: RunSpec) -> float:
    """By what convolutions write if some are depthwise, else by arithmetic, and never less than ResNet-18."""
    _, size, classes = PICTURES[spec.task]
    own = convolutions(spec.model, json.dumps(spec.model_options), size, classes)
    known = {_measured(one): time for one, time in _plain_of_size(RESNET18.size).items()}
    if own.depthwise:
        kin = [one for one in known if one.depthwise]
        nearest = min(kin, key=lambda one: abs(one.written - own.written))
        return known[nearest] * own.written / nearest.written
    usual = _measured(RESNET18)
    return known[usual] * max(1.0, own.arithmetic / usual.arithmetic)


def _plain_of_size(size: int) -> dict[Work, float]:
    return {one: time for one, time in fastest().items() if (one.kind, one.size) == (PLAIN, size)}


class Convolutions(NamedTuple):
    """Of a forward pass: operations of all layers; numbers that convolutions write; how many of these are depthwise."""

    arithmetic: float
    written: int
    depthwise: int


def _measured(one: Work) -> Convolutions:
    return convolutions(*one.network.split(" ", 1), one.size, 10)


@cache
def convolutions(model: str, options: str, size: int, classes: int) -> Convolutions:
    """What a network does for one picture; nothing is computed."""
    written: list[int] = []
    with torch.device("meta"), FlopCounterMode(display=False) as count, torch.no_grad():
        network = build_image(model, (3, size, size), classes, **json.loads(options)).eval()
        layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
        for layer in layers:
            layer.register_forward_hook(lambda _layer, _inputs, output: written.append(output.numel()))
        network(torch.zeros(1, 3, size, size))
    depthwise = sum(layer.groups == layer.in_channels > 1 for layer in layers)
    return Convolutions(float(count.get_total_flops()), sum(written), depthwise)
