"""Command line: words -> calls.

Exit codes: 0 done; 1 the machine said no (disk, permission, missing package); 2 a mistake in the words; 130 Ctrl-C.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlrsnet
from mlrsnet import _check, pretrained
from mlrsnet.nets import LAYOUTS
from mlrsnet.schedule import Schedule
from mlrsnet.show import describe
from mlrsnet.storage import ScheduleError


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one line on stderr (`MLRSNET_DEBUG=1` shows where it came from)."""
    arguments = parser().parse_args(words)
    try:
        arguments.run(arguments)
    except KeyboardInterrupt:
        print("mlrsnet: interrupted", file=sys.stderr)
        return 130
    except (ValueError, TypeError, OSError, ImportError) as error:
        if os.environ.get("MLRSNET_DEBUG"):
            raise
        print(f"mlrsnet: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError | TypeError) else 1
    return 0


def parser() -> argparse.ArgumentParser:
    """All commands."""
    top = argparse.ArgumentParser(prog="mlrsnet", description="Learned learning-rate schedules for PyTorch.")
    top.add_argument("--version", action="version", version=f"mlrsnet {mlrsnet.__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_metatrain(commands)
    _add_schedules(commands)
    _add_simulate(commands)
    return top


def _add_demo(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    demo = commands.add_parser("demo", help="learn a schedule on some digits, transfer it to others, compare")
    demo.add_argument("--epochs", type=int, default=40, help="length of each training (default: %(default)s)")
    demo.add_argument("--seeds", type=int, default=3, help="trainings per schedule (default: %(default)s)")
    demo.add_argument("--schedule", help="name or file of a schedule to transfer (default: learn one first)")
    demo.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: a GPU if there is one"
    )
    demo.add_argument(
        "--out", type=Path, default=Path("mlrsnet-demo"), help="folder for the results (default: %(default)s)"
    )
    demo.set_defaults(run=_demo)


def _add_metatrain(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    learn = commands.add_parser("metatrain", help="learn a schedule (Algorithm 1) on scikit-learn's digits")
    learn.add_argument(
        "--out", type=Path, default=Path("learned.safetensors"), help="the schedule (default: %(default)s)"
    )
    learn.add_argument("--name", default="digits", help="goes into its card (default: %(default)s)")
    learn.add_argument("--classes", default="0123456789", help="digits to learn on (default: %(default)s)")
    learn.add_argument("--epochs", type=int, default=60, help="length of the training (default: %(default)s)")
    learn.add_argument("--every", type=int, default=5, help="steps between meta-updates, T_val (default: %(default)s)")
    learn.add_argument("--batch-size", type=int, default=64, help="default: %(default)s")
    learn.add_argument("--weight-decay", type=float, default=5e-4, help="default: %(default)s")
    learn.add_argument("--meta-lr", type=float, default=1e-3, help="LR of Adam on the network (default: %(default)s)")
    learn.add_argument("--optimizer", default="sgd", help="sgd, momentum, adam or adamw (default: %(default)s)")
    learn.add_argument("--net", default="lstm", help="lstm or mlp (default: %(default)s)")
    learn.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    learn.set_defaults(run=_metatrain)


def _add_schedules(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    group = commands.add_parser("schedules", help="list, show and import schedules").add_subparsers(
        required=True, metavar="ACTION"
    )
    group.add_parser("list", help="every schedule that can be used by name").set_defaults(run=_list)
    show = group.add_parser("show", help="a schedule's card")
    show.add_argument("schedule", help="a name, or the path of a .safetensors file")
    show.add_argument("--plot", metavar="FILE", type=Path, help="also draw its loss-to-LR curves (.png, .pdf, .svg)")
    show.set_defaults(run=_show)
    take = group.add_parser("import", help="make the authors' checkpoints a schedule")
    take.add_argument(
        "checkpoints", nargs="+", type=Path, help="their .pth files, one a phase, in the order of training"
    )
    take.add_argument("--name", default="official", help="the name to use it by (default: %(default)s)")
    take.add_argument("--out", metavar="FILE", type=Path, help="write to this file instead of keeping it by name")
    take.add_argument("--layout", choices=LAYOUTS, default="official-test", help="gate order (default: %(default)s)")
    take.set_defaults(run=_import)


def _add_simulate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    simulate = commands.add_parser("simulate", help="the LR a schedule gives for each of a list of losses")
    simulate.add_argument("schedule", help="a name, or the path of a .safetensors file")
    simulate.add_argument("losses", help="numbers separated by commas, a text file of numbers, or - for standard input")
    simulate.add_argument("--gamma", type=float, default=1.0, help="range of the LR (default: %(default)s)")
    simulate.add_argument("--num-classes", type=int, help="for schedules that divide the loss by log(classes)")
    simulate.set_defaults(run=_simulate)


def _demo(arguments: argparse.Namespace) -> None:
    epochs = _check.whole_number("--epochs", arguments.epochs)
    seeds = _check.whole_number("--seeds", arguments.seeds)
    schedule = pretrained.load(arguments.schedule) if arguments.schedule else None
    _lab("demo").show_demo(epochs, seeds, schedule, arguments.out, arguments.device)


def _metatrain(arguments: argparse.Namespace) -> None:
    screen = _lab("metatrain")
    given = {name: value for name, value in vars(arguments).items() if name not in ("run", "out", "classes")}
    if not arguments.classes.isdecimal():
        raise ValueError(f"--classes must be digits written together, such as 01234, got {arguments.classes!r}")
    settings = screen.Settings(classes=tuple(int(digit) for digit in arguments.classes), **given)
    screen.show_metatrain(settings, arguments.out)


def _lab(command: str) -> Any:
    try:
        from mlrsnet.lab import screen
    except ImportError as error:
        raise ImportError(f"{command} needs {error.name}, which is not installed: pip install 'mlrsnet[lab]'") from None
    return screen


def _list(arguments: argparse.Namespace) -> None:
    known = pretrained.available()
    for name, path in sorted(known.items()):
        try:
            print(f"{name:24} {Schedule.load(path).card.description}")
        except ScheduleError as error:
            print(f"{name:24} unreadable: {error}")
    if not known:
        print(
            "No schedules yet: none is shipped with this version. `mlrsnet schedules import` adds the authors' checkpoints."
        )


def _show(arguments: argparse.Namespace) -> None:
    schedule = pretrained.load(arguments.schedule)
    print(describe(schedule))
    if arguments.plot:
        schedule.plot(arguments.plot)
        print(f"\ncurves: {arguments.plot}")


def _import(arguments: argparse.Namespace) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", arguments.name):
        raise ValueError(f"--name must be letters, digits, '.', '_' and '-', got {arguments.name!r}")
    path = arguments.out or pretrained.user_folder() / f"{arguments.name}{pretrained.SUFFIX}"
    Schedule.from_official(arguments.checkpoints, layout=arguments.layout, name=arguments.name).save(path)
    use = arguments.out or arguments.name
    print(f"wrote {path}\nuse it: mlrsnet.LearnedLR(optimizer, {str(use)!r}, total_steps=..., num_classes=...)")


def _simulate(arguments: argparse.Namespace) -> None:
    losses = _read_losses(arguments.losses)
    lrs = pretrained.load(arguments.schedule).simulate(losses, arguments.gamma, num_classes=arguments.num_classes)
    print("step,loss,lr")
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
        return _numbers(Path(words).read_text())
    except ValueError as error:
        raise ValueError(
            f"losses must be numbers separated by spaces, commas or lines; {words} has others ({error})"
        ) from None


def _numbers(text: str) -> list[float]:
    return [float(word) for word in re.split(r"[\s,]+", text.strip())]


if __name__ == "__main__":
    sys.exit(main())
