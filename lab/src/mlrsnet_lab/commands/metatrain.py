"""`mlrsnet metatrain`."""

import argparse
from pathlib import Path

from mlrsnet.cli.parser import Parser
from mlrsnet_lab import checks
from mlrsnet_lab.commands.options import (
    DATASET,
    add_data,
    add_device,
    add_executor,
    add_field,
    add_tensorboard,
    given,
    screen,
    settings,
)
from mlrsnet_lab.commands.together import together
from mlrsnet_lab.meta_specs import OBJECTIVES, PRESETS, make_meta_spec
from mlrsnet_lab.spec import RunSpec

OWN: dict[str, dict[str, str]] = {
    "greedy": {
        "model": "network to train, such as resnet18",
        "optimizer": "sgd, sgdm, adam or adamw",
        "epochs": "of the training",
        "batch_size": "pictures per step",
        "weight_decay": "of the optimizer",
        "every": "steps between meta-updates, T_val",
        "net": "the schedule's network: lstm or mlp",
    },
    "horizon": {
        "generations": "of small trainings",
        "tasks": "different trainings per generation",
        "members": "copies of each training, an even number",
        "sigma": "size of the perturbations",
        "begin": "a schedule to begin as, such as universal-lstm",
        "hidden": "size of the schedule's network",
        "anneal": "linear, or none: the network starts as a fixed LR and learns to anneal",
        "average": "decay of the average over generations that becomes the schedule",
        "gamma": "range of the LR",
        "fitness": "what to minimise at the end: calibrated or loss",
        "together": "trainings of a generation side by side at most, 0 for all that can; fewer means more to spread",
        "held_out": "other small trainings, which only measure",
    },
}
"""Options that only one objective has; their defaults are those of its spec."""

SHARED = ("task", "seed", "name", "meta_lr")


def add(learn: Parser) -> None:
    """Add its options."""
    _add_shared(learn)
    for objective, options in OWN.items():
        group = learn.add_argument_group(f"only with --objective {objective}")
        for name, what in options.items():
            add_field(group, OBJECTIVES[objective], name, what, "none" if name == "begin" else None)
    add_device(learn)
    add_data(learn)
    add_tensorboard(learn)
    add_executor(learn, "processes that train a generation,")
    learn.set_defaults(run=_run, under_torchrun=True)


def _add_shared(learn: argparse.ArgumentParser) -> None:
    learn.add_argument(
        "--objective",
        metavar="NAME",
        help="greedy: Algorithm 1, one step ahead, in one training; horizon: the end of many small trainings "
        "(default: greedy, or that of the preset)",
    )
    learn.add_argument(
        "--preset",
        metavar="NAME",
        help=f"a named meta-training of the objective horizon: {' or '.join(PRESETS)}; options override it",
    )
    learn.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        default=Path("learned.safetensors"),
        help="a new file for the schedule (default: %(default)s)",
    )
    learn.add_argument("--name", help="for the schedule's card (default: the task's)")
    add_field(learn, RunSpec, "task", DATASET)
    learn.add_argument(
        "--classes", metavar="LIST", help="only these classes of the task, such as 01234 or 3,17,42 (default: all)"
    )
    add_field(learn, RunSpec, "seed", "of everything random")
    defaults = ", ".join(f"{objective}: {kind.meta_lr:g}" for objective, kind in OBJECTIVES.items())
    learn.add_argument(
        "--meta-lr", metavar="X", type=float, help=f"LR of the Adam that trains the schedule (default: {defaults})"
    )


def _run(arguments: argparse.Namespace) -> None:
    preset = _preset(arguments)
    objective = _objective(arguments, preset)
    fields = given(arguments, (*SHARED, *OWN[objective]))
    if arguments.classes is not None:
        fields["task_options"] = {"classes": _classes(arguments.classes)}
    if preset is None:
        fields.setdefault("name", _name(arguments))
    spec, chosen = make_meta_spec(objective, fields, preset), settings(arguments)
    if objective != "horizon" and (chosen.executor.name != "local" or chosen.executor.jobs is not None):
        raise ValueError("--executor and --jobs belong to --objective horizon, got --objective greedy: leave one out")
    with together(arguments.device):
        screen("metatrain").show_metatrain(spec, arguments.out, chosen)


def _preset(arguments: argparse.Namespace) -> str | None:
    return None if arguments.preset is None else checks.one_of("--preset", arguments.preset, PRESETS)


def _objective(arguments: argparse.Namespace, preset: str | None) -> str:
    """The objective. Raises on options that belong to the other one."""
    asked = arguments.objective or ("horizon" if preset else "greedy")
    objective = checks.one_of("--objective", asked, OBJECTIVES)
    owners = {name: owner for owner, options in OWN.items() for name in options}
    used = given(arguments, owners) | ({"preset": preset} if preset else {})
    for name in used:
        owner = owners.get(name, "horizon")
        if owner != objective:
            raise ValueError(
                f"--{name.replace('_', '-')} belongs to --objective {owner}, got --objective {objective}: leave one out"
            )
    return objective


def _name(arguments: argparse.Namespace) -> str:
    task = arguments.task or RunSpec.task
    return task if arguments.classes is None else f"{task} {arguments.classes}"


def _classes(text: str) -> list[int]:
    parts = text.split(",") if "," in text else list(text)
    if not parts or not all(part.strip().isdecimal() for part in parts):
        raise ValueError(
            f"--classes must be digits written together, such as 01234, or numbers with commas, got {text!r}"
        )
    return [int(part) for part in parts]
