"""`mlrsnet schedules` and `mlrsnet simulate`."""

import argparse
import os
import re
import sys
from pathlib import Path

from mlrsnet._files import names
from mlrsnet._files.official import GAMMAS
from mlrsnet._files.storage import ScheduleError
from mlrsnet._files.untrusted import printable, read_text, reason
from mlrsnet.cli.parser import Parser, add_command
from mlrsnet.nets import LAYOUTS
from mlrsnet.schedule import Schedule


def add(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the commands."""
    _add_schedules(commands)
    _add_simulate(commands)


def _add_schedules(commands: "argparse._SubParsersAction[Parser]") -> None:
    group = add_command(commands, "schedules", "list, show and import schedules").add_subparsers(
        title="actions", required=True, metavar="ACTION"
    )
    add_command(group, "list", "every schedule that can be used by name").set_defaults(run=_list)
    show = add_command(group, "show", "a schedule's card: what it was learned on, and for what")
    show.add_argument("schedule", help="a name, the path of a .safetensors file, or hf://owner/name")
    show.add_argument("--plot", metavar="FILE", type=Path, help="also draw its loss-to-LR curves (.png, .pdf, .svg)")
    show.add_argument("--map", metavar="FILE", type=Path, help="also draw its LR over loss and progress")
    show.set_defaults(run=_show)
    take = add_command(group, "import", "make the authors' checkpoints a schedule")
    take.add_argument(
        "checkpoints", nargs="+", type=Path, help="their .pth files, one per phase, in the order of training"
    )
    take.add_argument("--name", default="official", help="the name to use it by (default: %(default)s)")
    take.add_argument("--out", metavar="FILE", type=Path, help="write to this file instead of keeping it by name")
    take.add_argument(
        "--layout",
        metavar="ORDER",
        choices=LAYOUTS,
        default="official-test",
        help=f"order of the gates: {', '.join(LAYOUTS)} (default: %(default)s)",
    )
    take.add_argument(
        "--gamma",
        metavar="WHEN",
        choices=GAMMAS,
        default="per-phase",
        help="when the range is computed: initial (once, as in the paper) or per-phase (default: %(default)s)",
    )
    take.set_defaults(run=_import)


def _add_simulate(commands: "argparse._SubParsersAction[Parser]") -> None:
    simulate = add_command(
        commands,
        "simulate",
        "the LR a schedule gives for each of a list of losses",
        "Prints CSV: step, loss, LR (a fraction of the weights' norm if steps are relative).",
    )
    simulate.add_argument("schedule", help="a name, the path of a .safetensors file, or hf://owner/name")
    simulate.add_argument("losses", help="numbers separated by commas, a text file of numbers, or - for standard input")
    simulate.add_argument(
        "--gamma",
        metavar="X",
        type=float,
        help="range of the LR (default: the schedule's own if it is fixed, else 1)",
    )
    simulate.add_argument(
        "--num-classes", metavar="N", type=int, help="for schedules that divide the loss by log(classes)"
    )
    simulate.add_argument(
        "--total-steps",
        metavar="N",
        type=int,
        help="steps of the whole training, if the losses are only its beginning (default: as many as losses)",
    )
    simulate.set_defaults(run=_simulate)


def _list(arguments: argparse.Namespace) -> None:
    for name, path in sorted(names.available().items()):
        try:
            print(printable(f"{name:24} {Schedule.load(path).card.description}"))
        except ScheduleError as error:
            print(printable(f"{name:24} unreadable: {error}"))


def _show(arguments: argparse.Namespace) -> None:
    schedule = Schedule.load(arguments.schedule)
    print(schedule.describe())
    if arguments.plot:
        schedule.plot(arguments.plot)
        print(f"\ncurves: {arguments.plot}")
    if arguments.map:
        schedule.plot_map(arguments.map)
        print(f"\nmap: {arguments.map}")


def _import(arguments: argparse.Namespace) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", arguments.name):
        raise ValueError(f"--name must be letters, digits, '.', '_' and '-', got {arguments.name!r}")
    if arguments.out is None and (names.SHIPPED / f"{arguments.name}{names.SUFFIX}").is_file():
        raise ValueError(
            f"--name must not be that of a shipped schedule, which would always be loaded instead, got {arguments.name!r}: "
            "choose another, or pass --out FILE"
        )
    path = arguments.out or names.user_folder() / f"{arguments.name}{names.SUFFIX}"
    Schedule.from_official(
        arguments.checkpoints, layout=arguments.layout, name=arguments.name, gamma=arguments.gamma
    ).save(path)
    use = arguments.out or arguments.name
    print(f"wrote {path}\nuse it: mlrsnet.LearnedLR(optimizer, {str(use)!r}, total_steps=..., num_classes=...)")


def _simulate(arguments: argparse.Namespace) -> None:
    losses = _read_losses(arguments.losses)
    schedule = Schedule.load(arguments.schedule)
    gamma = schedule.card.gamma.value or 1.0 if arguments.gamma is None else arguments.gamma
    lrs = schedule.simulate(losses, gamma, num_classes=arguments.num_classes, total_steps=arguments.total_steps)
    is_part = schedule.card.gamma.is_relative or schedule.card.gamma.is_measured
    print("step,loss,part of the weights" if is_part else "step,loss,lr")
    for step, (loss, lr) in enumerate(zip(losses, lrs, strict=True)):
        print(f"{step},{loss:g},{lr:.6g}")


def _read_losses(words: str) -> list[float]:
    try:
        return _numbers(sys.stdin.read() if words == "-" else words)
    except ValueError:
        if words == "-" or not os.path.isfile(words):
            raise ValueError(
                f"losses must be numbers separated by commas, or a file of them, got {words[:80]!r}"
            ) from None
    try:
        return _numbers(read_text(words))
    except ValueError as error:
        raise ValueError(
            f"losses must be numbers separated by spaces, commas or lines; {words} has others ({reason(error)})"
        ) from None


def _numbers(text: str) -> list[float]:
    return [float(word) for word in re.split(r"[\s,]+", text.strip())]
