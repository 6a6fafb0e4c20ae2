"""Words on the command line: mistakes in one line, help that fits a terminal."""

import argparse
from typing import Any, NoReturn


class Help(argparse.HelpFormatter):
    """Names and what they mean on one line: argparse itself leaves too little room for the names of commands."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)
        self._action_max_length = 14


class Parser(argparse.ArgumentParser):
    """Describes a command by the line that the list of commands has for it; its subcommands are of the same kind."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": Help, **settings})

    def error(self, message: str) -> NoReturn:
        """One line instead of the whole usage before it."""
        self.exit(2, f"{self.prog}: error: {message}: see `{self.prog} --help`\n")


def add_command(commands: "argparse._SubParsersAction[Any]", name: str, what: str, more: str = "") -> Parser:
    """A command with what it does, said in the list of commands, and more that only its own help says."""
    text = f"{what[0].upper()}{what[1:]}. {more}".strip()
    parser: Parser = commands.add_parser(name, help=what, description=text)
    return parser
