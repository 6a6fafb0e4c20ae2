"""`mlrsnet train`."""

import argparse
import json
from pathlib import Path

from mlrsnet.cli.parser import Parser
from mlrsnet_lab.commands.options import (
    DATASET,
    add_data,
    add_device,
    add_field,
    add_out,
    add_tensorboard,
    given,
    settings,
    together,
)
from mlrsnet_lab.commands.progress import show_outcome
from mlrsnet_lab.folders import run_folder
from mlrsnet_lab.overrides import NAMED, Option, make_spec
from mlrsnet_lab.records import Record
from mlrsnet_lab.several import train_all
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.watch import Planned, Watcher

FIELDS = {
    "task": DATASET,
    "model": "network, such as resnet18",
    "optimizer": "sgd, sgdm, adam, adamw and others",
    "schedule": "what sets the LR: multistep, mlr-snet and others, or a learned schedule's name, file or hf://owner/name",
    "epochs": "passes over the data",
    "batch_size": "pictures or texts per step",
    "lr": "initial LR of hand-designed schedules; learned ones find their own",
    "weight_decay": "of the optimizer",
    "clip_norm": "largest norm of the gradient",
    "seed": "of initialisation, order of the data and dropout",
    "eval_every": "epochs between evaluations",
    "sequence_length": "tokens in a piece of text",
    "rays": "random rays from the solution to measure the loss along at the end",
    "precision": "fp32, bf16 or auto: bf16 on a GPU, fp32 on a CPU",
}


def add(train: Parser) -> None:
    """Add its options."""
    train.add_argument(
        "spec", nargs="?", type=Path, metavar="FILE", help="JSON as --show prints it, or a run's record.json"
    )
    for name, what in FIELDS.items():
        add_field(train, RunSpec, name, what, "no limit" if name == "clip_norm" else None)
    train.add_argument(
        "--deterministic", action="store_true", default=None, help="the same bits every time, on a GPU too"
    )
    train.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="FIELD.NAME=VALUE",
        help="an option of the task, model, optimizer or schedule, such as schedule.warmup=0.05, "
        "optimizer.momentum=0.95 or task.classes=[0,1]; may be repeated",
    )
    add_out(train, None, "the run's folder (default: one in runs/, named after what is trained)")
    train.add_argument("--show", action="store_true", help="print the complete spec as JSON, and train nothing")
    add_device(train)
    add_data(train)
    add_tensorboard(train)
    train.set_defaults(run=_run, under_torchrun=True)


def _run(arguments: argparse.Namespace) -> None:
    fields = given(arguments, (*FIELDS, "deterministic"))
    spec = make_spec(arguments.spec, fields, [_option(text) for text in arguments.option])
    if arguments.show:
        print(spec.to_json())
        return
    folder = arguments.out or run_folder(spec)
    with together(arguments.device):
        planned = [Planned(spec, folder, "training")]
        show_outcome(folder, settings(arguments), lambda watched: train_all(planned, watched), DataSizes())


class DataSizes(Watcher):
    """Prints how much data there is, above the bar."""

    def begin(self, record: Record, step: int, total_steps: int) -> None:
        """Print the size of each part."""
        task = record.data["task"]
        print(", ".join(f"{task[part]:,} {part}" for part in ("train", "val", "test")))


def _option(text: str) -> Option:
    """`schedule.warmup=0.05` -> ("schedule", "warmup", 0.05); a value that is not JSON is a string."""
    path, equals, value = text.partition("=")
    field, dot, name = path.partition(".")
    if not equals or not dot or not name or field not in NAMED:
        raise ValueError(f"--option must be FIELD.NAME=VALUE with FIELD one of {', '.join(NAMED)}, got {text!r}")
    try:
        return field, name, json.loads(value)
    except ValueError:
        return field, name, value
