"""An argument parser whose errors are one line and whose help fits a terminal."""

import argparse
from typing import Any, NoReturn


class Help(argparse.HelpFormatter):
    """Leaves more room than argparse for names, so that a name and its help share a line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)
        self._action_max_length = 14


class Parser(argparse.ArgumentParser):
    """The parser of a command and of its subcommands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": Help, **settings})

    def error(self, message: str) -> NoReturn:
        """Print one line, without the usage."""
        self.exit(2, f"{self.prog}: error: {message}: see `{self.prog} --help`\n")


def add_command(commands: "argparse._SubParsersAction[Any]", name: str, what: str, more: str = "") -> Parser:
    """Add a command. `what` is its line in the list of commands; `more` is only in its own help."""
    text = f"{what[0].upper()}{what[1:]}. {more}".strip()
    parser: Parser = commands.add_parser(name, help=what, description=text)
    return parser
