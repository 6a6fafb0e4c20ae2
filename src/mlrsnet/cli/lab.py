"""Commands of the lab: demo, metatrain, train, reproduce, report, runs."""

import argparse
import json
from pathlib import Path
from typing import Any

from mlrsnet import _check, pretrained
from mlrsnet.cli.parser import Parser, add_command

Words = argparse.Namespace
OPTIONS = {
    "task": "data: a name such as cifar10, an .npz file or a folder of pictures (default: digits)",
    "model": "network, such as resnet18 (default: small_cnn)",
    "optimizer": "sgd, sgdm, adam, adamw and others (default: sgd)",
    "schedule": "what sets the LR: multistep, mlr-snet and others, or a learned schedule's name, file or hf://owner/name "
    "(default: cosine)",
}
NUMBERS: dict[str, tuple[type, str]] = {
    "epochs": (int, "passes over the data (default: 40)"),
    "batch_size": (int, "pictures or texts in a step (default: 64)"),
    "lr": (float, "initial LR of hand-designed schedules; learned ones find their own (default: 0.1)"),
    "weight_decay": (float, "of the optimizer (default: 0.0005)"),
    "clip_norm": (float, "largest norm of the gradient (default: no limit)"),
    "seed": (int, "of initialisation, order of the data and dropout (default: 0)"),
    "eval_every": (int, "epochs between evaluations (default: 1)"),
    "sequence_length": (int, "tokens in a piece of text (default: 35)"),
    "rays": (int, "random rays from the solution to measure the loss along at the end (default: 0)"),
}
OBJECTIVES: dict[str, dict[str, tuple[Any, str]]] = {
    "greedy": {
        "model": ("small_cnn", "network to train, such as resnet18"),
        "optimizer": ("sgd", "sgd, sgdm, adam or adamw"),
        "epochs": (60, "of the training"),
        "batch_size": (64, "pictures in a step"),
        "weight_decay": (5e-4, "of the optimizer"),
        "every": (5, "steps between meta-updates, T_val"),
        "net": ("lstm", "the schedule's network: lstm or mlp"),
    },
    "horizon": {
        "generations": (150, "of small trainings"),
        "tasks": (8, "different ones in a generation"),
        "members": (16, "trainings of each, an even number"),
        "sigma": (0.1, "size of the perturbations"),
        "hidden": (50, "size of the schedule's network"),
        "anneal": ("linear", "linear, or none: the network begins as a fixed LR and learns to anneal"),
        "average": (0.9, "decay of the average over generations that becomes the schedule"),
        "gamma": (1.0, "range of the LR, or of the relative step"),
        "fitness": ("calibrated", "what is to be small at the end: calibrated, loss or error"),
        "held_out": (48, "other small trainings, which only measure"),
    },
}
META_LRS = {"greedy": 1e-3, "horizon": 0.03}
FIELDS = (*OPTIONS, *NUMBERS, "precision", "deterministic")


def add(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Make them known."""
    _add_demo(add_command(commands, "demo", "learn a schedule on some digits, transfer it to others, compare"))
    _add_reproduce(
        add_command(
            commands,
            "reproduce",
            "train a table of the paper and report on it",
            "Called again, it goes on where it was stopped; finished runs are not made again.",
        )
    )
    _add_train(
        add_command(
            commands,
            "train",
            "one training, from a file or from options",
            "Options given beside a file are on top of it. An unknown name lists the known ones.",
        )
    )
    _add_metatrain(
        add_command(
            commands,
            "metatrain",
            "learn a schedule: while a model trains, or from many small trainings",
            "Stopped in between, the same command goes on.",
        )
    )
    _add_runs(add_command(commands, "runs", "list, show and resume runs"))
    _add_report(add_command(commands, "report", "make a page of tables and pictures from runs", "It trains nothing."))


def _add_demo(demo: argparse.ArgumentParser) -> None:
    demo.add_argument(
        "--generations", metavar="N", type=int, default=200, help="to learn from, full horizon (default: %(default)s)"
    )
    demo.add_argument("--epochs", metavar="N", type=int, default=10, help="of each training (default: %(default)s)")
    demo.add_argument("--seeds", metavar="N", type=int, default=5, help="trainings a schedule (default: %(default)s)")
    demo.add_argument(
        "--schedule", metavar="NAME", help="name or file of a schedule to transfer (default: learn one first)"
    )
    _add_out(demo, Path("mlrsnet-demo"), "folder for table, picture and schedule (default: %(default)s)")
    _add_device(demo)
    demo.set_defaults(run=_demo)


def _add_reproduce(make: argparse.ArgumentParser) -> None:
    make.add_argument("recipe", nargs="?", help="what to reproduce, such as table1, or all")
    make.add_argument("--list", action="store_true", help="say what can be reproduced, and train nothing")
    make.add_argument(
        "--scale",
        metavar="SCALE",
        default="smoke",
        help="smoke (small data, minutes on a CPU), short (a GPU, fewer epochs) or paper (a GPU, "
        "the paper's own settings) (default: %(default)s)",
    )
    make.add_argument(
        "--seeds", metavar="N", type=int, nargs="+", help="such as --seeds 0 1 (default: 0 1 2, three as in the paper)"
    )
    make.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this row or column; may be repeated"
    )
    _add_out(make, None, "folder for runs and report (default: mlrsnet-RECIPE-SCALE)")
    _add_device(make)
    _add_data(make)
    _add_tensorboard(make)
    make.set_defaults(run=_reproduce)


def _add_train(train: argparse.ArgumentParser) -> None:
    train.add_argument(
        "spec", nargs="?", type=Path, metavar="FILE", help="JSON as --show prints it, or a run's record.json"
    )
    for name, what in OPTIONS.items():
        train.add_argument(f"--{name}", metavar="NAME", help=what)
    for name, (kind, what) in NUMBERS.items():
        train.add_argument(
            f"--{name.replace('_', '-')}", metavar="N" if kind is int else "X", type=kind, dest=name, help=what
        )
    train.add_argument(
        "--precision", metavar="NAME", help="fp32, bf16 or auto: bf16 on a GPU, fp32 on a CPU (default: auto)"
    )
    train.add_argument(
        "--deterministic", action="store_true", default=None, help="the same bits every time on a GPU too"
    )
    train.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="FIELD.NAME=VALUE",
        help="an option of the task, model, optimizer or schedule, such as schedule.warmup=0.05, "
        "optimizer.momentum=0.95 or task.classes=[0,1]; may be repeated",
    )
    _add_out(train, None, "the run's folder (default: one in runs/ that is named after what is trained)")
    train.add_argument("--show", action="store_true", help="print everything that was asked for as JSON, train nothing")
    _add_device(train)
    _add_data(train)
    _add_tensorboard(train)
    train.set_defaults(run=_train)


def _add_metatrain(learn: argparse.ArgumentParser) -> None:
    learn.add_argument(
        "--objective",
        metavar="NAME",
        help="greedy: Algorithm 1, one step ahead, in one training; horizon: the end of many small trainings "
        "(default: greedy)",
    )
    learn.add_argument(
        "--recipe",
        metavar="NAME",
        help="a meta-training by its name, with --objective horizon: universal or universal-relative; options beside it are on top "
        "of it",
    )
    learn.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        default=Path("learned.safetensors"),
        help="a new file for the schedule (default: %(default)s)",
    )
    learn.add_argument("--name", help="stands in the schedule's card (default: the task's)")
    learn.add_argument(
        "--task",
        metavar="NAME",
        help="data: a name such as cifar10, an .npz file or a folder of pictures (default: digits)",
    )
    learn.add_argument(
        "--classes", metavar="LIST", help="only these of the task's classes, such as 01234 or 3,17,42 (default: all)"
    )
    learn.add_argument("--seed", metavar="N", type=int, help="of everything random (default: 0)")
    told = ", ".join(f"{objective}: {value:g}" for objective, value in META_LRS.items())
    learn.add_argument(
        "--meta-lr", metavar="X", type=float, help=f"LR of Adam, which trains the schedule (default: {told})"
    )
    for objective, options in OBJECTIVES.items():
        group = learn.add_argument_group(f"only with --objective {objective}")
        for name, (default, what) in options.items():
            metavar = {int: "N", float: "X"}.get(type(default), "NAME")
            text = f"{what} (default: {default})"
            group.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, type=type(default), help=text)
    _add_device(learn)
    _add_data(learn)
    _add_tensorboard(learn)
    learn.set_defaults(run=_metatrain)


def _add_runs(runs: argparse.ArgumentParser) -> None:
    actions = runs.add_subparsers(title="actions", required=True, metavar="ACTION")
    found = add_command(
        actions, "list", "every run below a folder", "With test accuracy (%) or perplexity of the last and best epoch."
    )
    found.add_argument("folder", nargs="?", type=Path, default=Path("."), help="default: the current one")
    found.set_defaults(run=_list_runs)
    show = add_command(actions, "show", "one run: what was trained, its result, its last epochs")
    show.add_argument("folder", type=Path, help="the run's, as `mlrsnet runs list` shows it")
    show.set_defaults(run=_show_run)
    resume = add_command(actions, "resume", "go on with an unfinished run, or with all below a folder")
    resume.add_argument("folder", type=Path, help="the run's, or one above several")
    _add_device(resume)
    _add_data(resume)
    _add_tensorboard(resume)
    resume.set_defaults(run=_resume_runs)
    pack = add_command(
        actions, "pack", "ended runs as one file per column", "list, show and report read packs as they read folders."
    )
    pack.add_argument("folder", type=Path, help="runs are looked for at all depths below it")
    pack.set_defaults(run=_pack_runs)
    unpack = add_command(actions, "unpack", "the reverse of pack: a folder for each run")
    unpack.add_argument("folder", type=Path, help="packs are looked for at all depths below it")
    unpack.set_defaults(run=_unpack_runs)


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument("folder", type=Path, help="runs are looked for at all depths below it")
    _add_out(report, None, "folder for report.html and report.md (default: the same)")
    report.set_defaults(run=_report)


def _add_out(command: argparse.ArgumentParser, default: Path | None, what: str) -> None:
    command.add_argument("--out", metavar="FOLDER", type=Path, default=default, help=what)


def _add_device(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--device", metavar="NAME", default="auto", help="cpu, cuda or cuda:N (default: a GPU if there is one)"
    )


def _add_data(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data",
        metavar="FOLDER",
        type=Path,
        help="where datasets are (default: $MLRSNET_DATA or ~/.cache/mlrsnet/data)",
    )


def _add_tensorboard(command: argparse.ArgumentParser) -> None:
    command.add_argument("--tensorboard", action="store_true", help="also write event files, beside each record")


def _demo(words: Words) -> None:
    epochs = _check.whole_number("--epochs", words.epochs)
    seeds = _check.whole_number("--seeds", words.seeds)
    schedule = pretrained.load(words.schedule) if words.schedule else None
    generations = _check.whole_number("--generations", words.generations)
    _screen("demo").show_demo(generations, epochs, seeds, schedule, words.out, words.device)


def _reproduce(words: Words) -> None:
    screen = _screen("reproduce")
    if words.list:
        screen.show_recipes()
        return
    if words.recipe is None:
        raise ValueError("reproduce needs the name of a recipe: `mlrsnet reproduce --list` shows them")
    out = words.out or Path(f"mlrsnet-{words.recipe}-{words.scale}")
    screen.show_reproduce(
        words.recipe,
        words.scale,
        out,
        seeds=words.seeds,
        only=words.only,
        device=words.device,
        root=words.data,
        tensorboard=words.tensorboard,
    )


def _train(words: Words) -> None:
    screen = _screen("train")
    spec = screen.make_spec(words.spec, _given(words), [_option(text) for text in words.option])
    if words.show:
        print(spec.to_json())
        return
    screen.show_train(spec, words.out, words.device, words.data, words.tensorboard)


def _metatrain(words: Words) -> None:
    objective = _check.one_of("--objective", words.objective or ("horizon" if words.recipe else "greedy"), OBJECTIVES)
    if words.recipe and objective != "horizon":
        raise ValueError(f"--recipe belongs to --objective horizon, got --objective {objective}: leave one out")
    for other, options in OBJECTIVES.items():
        given = [name for name in options if getattr(words, name) is not None and name not in OBJECTIVES[objective]]
        if given:
            raise ValueError(
                f"--{given[0].replace('_', '-')} belongs to --objective {other}, got --objective {objective}: leave one out"
            )
    classes, screen = _classes(words.classes), _screen("metatrain")
    shared = {"task": words.task, "seed": words.seed, "name": words.name, "meta_lr": words.meta_lr}
    own = {name: getattr(words, name) for name in OBJECTIVES[objective]}
    fields = {name: value for name, value in (shared | own).items() if value is not None}
    if classes:
        fields["task_options"] = {"classes": classes}
    if not words.recipe:
        task = words.task or "digits"
        name = f"{task} {words.classes}" if classes else task
        defaults = {option: default for option, (default, _) in OBJECTIVES[objective].items()}
        fields = defaults | {"task": task, "seed": 0, "name": name, "meta_lr": META_LRS[objective]} | fields
    if objective == "horizon":
        screen.show_horizon(fields, words.out, words.device, words.data, words.tensorboard, recipe=words.recipe)
        return
    options = {name: fields.pop(name) for name in ("every", "meta_lr", "net", "name")}
    fields |= {"schedule": "mlr-snet", "schedule_options": options}
    screen.show_metatrain(fields, words.out, words.device, words.data, words.tensorboard)


def _list_runs(words: Words) -> None:
    _screen("runs").show_runs(words.folder)


def _show_run(words: Words) -> None:
    _screen("runs").show_run(words.folder)


def _resume_runs(words: Words) -> None:
    _screen("runs").resume_runs(words.folder, words.device, words.data, words.tensorboard)


def _pack_runs(words: Words) -> None:
    _screen("runs").pack_runs(words.folder)


def _unpack_runs(words: Words) -> None:
    _screen("runs").unpack_runs(words.folder)


def _report(words: Words) -> None:
    _screen("report").show_report(words.folder, words.out)


def _screen(command: str) -> Any:
    try:
        from mlrsnet.lab import screen
    except ImportError as error:
        raise ImportError(f"{command} needs {error.name}, which is not installed: pip install 'mlrsnet[lab]'") from None
    return screen


def _given(words: Words) -> dict[str, Any]:
    """The fields of a spec that were given as options."""
    return {name: getattr(words, name) for name in FIELDS if getattr(words, name) is not None}


def _option(text: str) -> tuple[str, str, Any]:
    """`schedule.warmup=0.05` -> ("schedule", "warmup", 0.05); what is not JSON is a word."""
    path, equals, value = text.partition("=")
    field, dot, name = path.partition(".")
    if not equals or not dot or not name or field not in OPTIONS:
        raise ValueError(f"--option must be FIELD.NAME=VALUE with FIELD one of {', '.join(OPTIONS)}, got {text!r}")
    try:
        return field, name, json.loads(value)
    except ValueError:
        return field, name, value


def _classes(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = text.split(",") if "," in text else list(text)
    if not parts or not all(part.strip().isdecimal() for part in parts):
        raise ValueError(
            f"--classes must be digits written together, such as 01234, or numbers with commas, got {text!r}"
        )
    return [int(part) for part in parts]
