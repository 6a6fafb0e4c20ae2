"""`mlrsnet demo`: the recipe of that name."""

import argparse
from pathlib import Path

from mlrsnet.cli.parser import Parser
from mlrsnet_lab.commands.options import add_device, add_out, settings
from mlrsnet_lab.commands.reproduce import show_reproduce
from mlrsnet_lab.recipes import DEMO


def add(demo: Parser) -> None:
    """Add its options."""
    add_out(demo, Path("mlrsnet-demo"), "folder for runs and report (default: %(default)s)")
    add_device(demo)
    demo.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    show_reproduce(DEMO, "smoke", arguments.out, settings(arguments))
