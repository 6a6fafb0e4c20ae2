"""`mlrsnet schedules`."""

import argparse
import re
from pathlib import Path

from mlrsnet import default
from mlrsnet.cli.parser import Parser, add_command
from mlrsnet.files import names
from mlrsnet.files.official import GAMMAS
from mlrsnet.files.storage import ScheduleError
from mlrsnet.files.untrusted import printable
from mlrsnet.nets import LAYOUTS
from mlrsnet.schedule import Schedule


def add(schedules: Parser) -> None:
    """Add its actions."""
    group = schedules.add_subparsers(title="actions", required=True, metavar="ACTION")
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


def _list(arguments: argparse.Namespace) -> None:
    print(
        f"{default.NAME:24} The default: an equation, which reads the steps of the training, and losses if it is told any."
    )
    for name, path in sorted(names.available().items()):
        try:
            print(printable(f"{name:24} {network(path).card.description}"))
        except ScheduleError as error:
            print(printable(f"{name:24} unreadable: {error}"))


def _show(arguments: argparse.Namespace) -> None:
    if arguments.schedule == default.NAME and not (arguments.plot or arguments.map):
        print(default.__doc__)
        return
    schedule = network(arguments.schedule)
    print(schedule.describe())
    if arguments.plot:
        schedule.plot(arguments.plot)
        print(f"\ncurves: {arguments.plot}")
    if arguments.map:
        schedule.plot_map(arguments.map)
        print(f"\nmap: {arguments.map}")


def network(schedule: str | Path) -> Schedule:
    """A schedule that is no equation: it can be drawn and simulated without a training."""
    found = Schedule.load(schedule)
    if not isinstance(found, Schedule):
        raise ValueError(
            f"schedule must be a network, got {schedule!r}, whose LRs come from the steps of a training: draw them with "
            "mlrsnet.preview(optimizer, total_steps=...)"
        )
    return found


def _import(arguments: argparse.Namespace) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", arguments.name):
        raise ValueError(f"--name must be letters, digits, '.', '_' and '-', got {arguments.name!r}")
    is_taken = arguments.name == default.NAME or (names.SHIPPED / f"{arguments.name}{names.SUFFIX}").is_file()
    if arguments.out is None and is_taken:
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
