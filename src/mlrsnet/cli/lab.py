"""Commands of the lab: demo, metatrain, train, reproduce, report, runs."""

import argparse
import json
from pathlib import Path
from typing import Any

from mlrsnet import _check, pretrained

Words = argparse.Namespace
OPTIONS = ("task", "model", "optimizer", "schedule")
NUMBERS = {"epochs": int, "batch_size": int, "lr": float, "weight_decay": float, "clip_norm": float, "seed": int}
FIELDS = (*OPTIONS, *NUMBERS, "precision", "deterministic", "eval_every", "sequence_length")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Make them known."""
    _add_demo(commands.add_parser("demo", help="learn a schedule on some digits, transfer it to others, compare"))
    _add_reproduce(commands.add_parser("reproduce", help="train a table of the paper and report on it"))
    _add_train(commands.add_parser("train", help="one training, from a spec or from options"))
    _add_metatrain(commands.add_parser("metatrain", help="learn a schedule (Algorithm 1) while a model trains"))
    _add_runs(commands.add_parser("runs", help="list, show and resume runs"))
    _add_report(commands.add_parser("report", help="make a page of tables and pictures from runs"))


def _add_demo(demo: argparse.ArgumentParser) -> None:
    demo.add_argument("--epochs", type=int, default=40, help="length of each training (default: %(default)s)")
    demo.add_argument("--seeds", type=int, default=3, help="trainings per schedule (default: %(default)s)")
    demo.add_argument("--schedule", help="name or file of a schedule to transfer (default: learn one first)")
    demo.add_argument(
        "--out", type=Path, default=Path("mlrsnet-demo"), help="folder for the results (default: %(default)s)"
    )
    _add_device(demo)
    demo.set_defaults(run=_demo)


def _add_reproduce(make: argparse.ArgumentParser) -> None:
    make.add_argument("recipe", nargs="?", help="its name; --list shows all")
    make.add_argument("--list", action="store_true", help="what can be reproduced, one a line")
    make.add_argument(
        "--scale", default="smoke", help="smoke (seconds, CPU), short (a GPU) or paper (default: %(default)s)"
    )
    make.add_argument("--seeds", type=int, nargs="+", help="default: the recipe's, three as in the paper")
    make.add_argument(
        "--only", action="append", default=[], metavar="ROW", help="only this row or column; may be repeated"
    )
    make.add_argument("--out", type=Path, help="folder for runs and report (default: mlrsnet-RECIPE-SCALE)")
    _add_device(make)
    _add_data(make)
    _add_tensorboard(make)
    make.set_defaults(run=_reproduce)


def _add_train(train: argparse.ArgumentParser) -> None:
    train.add_argument("spec", nargs="?", type=Path, help="a JSON file of fields, or a run's record.json")
    for name in OPTIONS:
        train.add_argument(f"--{name}", help="by name; an unknown one lists them")
    for name, kind in NUMBERS.items():
        train.add_argument(f"--{name.replace('_', '-')}", type=kind)
    train.add_argument("--precision", help="auto, fp32 or bf16")
    train.add_argument(
        "--deterministic", action="store_true", default=None, help="the same bits every time on a GPU too"
    )
    train.add_argument("--eval-every", type=int, help="epochs between evaluations")
    train.add_argument("--sequence-length", type=int, help="of text")
    train.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="FIELD.NAME=VALUE",
        help="such as schedule.warmup=0.05, optimizer.momentum=0.95 or task.classes=[0,1]; may be repeated",
    )
    train.add_argument("--out", type=Path, help="the run's folder (default: one under runs/ named after the spec)")
    train.add_argument("--show", action="store_true", help="print the whole spec as JSON and train nothing")
    _add_device(train)
    _add_data(train)
    _add_tensorboard(train)
    train.set_defaults(run=_train)


def _add_metatrain(learn: argparse.ArgumentParser) -> None:
    learn.add_argument(
        "--out", type=Path, default=Path("learned.safetensors"), help="the schedule (default: %(default)s)"
    )
    learn.add_argument("--name", help="goes into its card (default: the task's)")
    learn.add_argument("--task", default="digits", help="default: %(default)s")
    learn.add_argument("--model", default="small_cnn", help="default: %(default)s")
    learn.add_argument("--classes", help="only these of the task's classes, such as 01234 or 3,17,42")
    learn.add_argument("--epochs", type=int, default=60, help="length of the training (default: %(default)s)")
    learn.add_argument("--every", type=int, default=5, help="steps between meta-updates, T_val (default: %(default)s)")
    learn.add_argument("--batch-size", type=int, default=64, help="default: %(default)s")
    learn.add_argument("--weight-decay", type=float, default=5e-4, help="default: %(default)s")
    learn.add_argument("--meta-lr", type=float, default=1e-3, help="LR of Adam on the network (default: %(default)s)")
    learn.add_argument("--optimizer", default="sgd", help="sgd, sgdm, adam or adamw (default: %(default)s)")
    learn.add_argument("--net", default="lstm", help="lstm or mlp (default: %(default)s)")
    learn.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    _add_device(learn)
    _add_data(learn)
    learn.set_defaults(run=_metatrain)


def _add_runs(runs: argparse.ArgumentParser) -> None:
    actions = runs.add_subparsers(required=True, metavar="ACTION")
    found = actions.add_parser("list", help="every run below a folder")
    found.add_argument("folder", nargs="?", type=Path, default=Path("."), help="default: the current one")
    found.set_defaults(run=_list_runs)
    show = actions.add_parser("show", help="one run: spec, result, last epochs")
    show.add_argument("folder", type=Path)
    show.set_defaults(run=_show_run)
    resume = actions.add_parser("resume", help="go on with an unfinished run, or with all below a folder")
    resume.add_argument("folder", type=Path)
    _add_device(resume)
    _add_data(resume)
    _add_tensorboard(resume)
    resume.set_defaults(run=_resume_runs)


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument("folder", type=Path, help="runs are looked for at all depths below it")
    report.add_argument("--out", type=Path, help="folder for report.html and report.md (default: the same)")
    report.set_defaults(run=_report)


def _add_device(command: argparse.ArgumentParser) -> None:
    command.add_argument("--device", default="auto", help="cpu, cuda or cuda:N (default: a GPU if there is one)")


def _add_data(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data", type=Path, help="folder of datasets (default: $MLRSNET_DATA or ~/.cache/mlrsnet/data)"
    )


def _add_tensorboard(command: argparse.ArgumentParser) -> None:
    command.add_argument("--tensorboard", action="store_true", help="also write event files, beside each record")


def _demo(words: Words) -> None:
    epochs = _check.whole_number("--epochs", words.epochs)
    seeds = _check.whole_number("--seeds", words.seeds)
    schedule = pretrained.load(words.schedule) if words.schedule else None
    _screen("demo").show_demo(epochs, seeds, schedule, words.out, words.device)


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
    names = ("task", "model", "optimizer", "epochs", "batch_size", "weight_decay", "seed")
    fields = {name: getattr(words, name) for name in names}
    classes = _classes(words.classes)
    name = words.name or (f"{words.task} {words.classes}" if classes else words.task)
    fields["schedule"] = "mlr-snet"
    fields["schedule_options"] = {"every": words.every, "meta_lr": words.meta_lr, "net": words.net, "name": name}
    fields["task_options"] = {"classes": classes} if classes else {}
    _screen("metatrain").show_metatrain(fields, words.out, words.device, words.data)


def _list_runs(words: Words) -> None:
    _screen("runs").show_runs(words.folder)


def _show_run(words: Words) -> None:
    _screen("runs").show_run(words.folder)


def _resume_runs(words: Words) -> None:
    _screen("runs").resume_runs(words.folder, words.device, words.data, words.tensorboard)


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
