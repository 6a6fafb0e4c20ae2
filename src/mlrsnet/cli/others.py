"""Commands of other packages, found by their entry points.

An entry point of the group `mlrsnet.commands` names a sequence of `Command`. Only that list is imported before a command is called:

    [project.entry-points."mlrsnet.commands"]
    lab = "mlrsnet_lab.commands:COMMANDS"
"""

from importlib.metadata import entry_points
from typing import NoReturn

from mlrsnet.cli.parser import Command, Parser

GROUP = "mlrsnet.commands"
OF_THE_LAB = ("demo", "reproduce", "train", "metatrain", "runs", "report")
"""Commands that readers of the documents may try before the lab is installed."""

TO_INSTALL = "pip install mlrsnet-lab, or from a clone pip install ./lab"


def installed() -> list[Command]:
    """The commands of the packages that are installed."""
    return [command for point in entry_points(group=GROUP) for command in point.load()]


def missing() -> tuple[str, ...]:
    """The lab's commands, if it is not installed. Called, they say how to install it."""
    return () if "lab" in entry_points(group=GROUP).names else OF_THE_LAB


def add(parser: Parser) -> NoReturn:
    """In place of the options of a missing command."""
    raise ImportError(f"`{parser.prog}` belongs to the lab, which is not installed: {TO_INSTALL}")
