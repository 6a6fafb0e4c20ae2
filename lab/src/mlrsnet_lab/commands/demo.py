"""`mlrsnet demo`."""

import argparse
from pathlib import Path

from mlrsnet.cli.parser import Parser
from mlrsnet.cli.schedules import network
from mlrsnet_lab import checks
from mlrsnet_lab.commands.options import add_device, add_out, screen, settings


def add(demo: Parser) -> None:
    """Add its options."""
    demo.add_argument(
        "--generations", metavar="N", type=int, default=200, help="generations to learn from (default: %(default)s)"
    )
    demo.add_argument("--epochs", metavar="N", type=int, default=10, help="of each training (default: %(default)s)")
    demo.add_argument("--seeds", metavar="N", type=int, default=5, help="trainings per schedule (default: %(default)s)")
    demo.add_argument(
        "--schedule", metavar="NAME", help="name or file of a schedule to transfer (default: learn one first)"
    )
    add_out(demo, Path("mlrsnet-demo"), "folder for table, picture and schedule (default: %(default)s)")
    add_device(demo)
    demo.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    epochs = checks.whole_number("--epochs", arguments.epochs)
    seeds = checks.whole_number("--seeds", arguments.seeds)
    schedule = network(arguments.schedule) if arguments.schedule else None
    generations = checks.whole_number("--generations", arguments.generations)
    screen("demo").show_demo(generations, epochs, seeds, schedule, arguments.out, settings(arguments))
