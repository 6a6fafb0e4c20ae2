"""An argument parser whose errors are one line, whose help fits a terminal, and which loads a command when it is called."""

import argparse
from importlib import import_module
from typing import Any, NamedTuple, NoReturn


class Command(NamedTuple):
    """A command.

    module: its `add(parser)` adds the options. what: its line in the list of commands. more: only in its own help.
    """

    name: str
    module: str
    what: str
    more: str = ""


class Help(argparse.HelpFormatter):
    """Leaves more room than argparse for names, so that a name and its help share a line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)
        self._action_max_length = 14


class Parser(argparse.ArgumentParser):
    """The parser of a command and of its subcommands. `module` is what it has yet to load."""

    module = ""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": Help, **settings})

    def load(self) -> None:
        """Add the options of its module, once."""
        module, self.module = self.module, ""
        if module:
            import_module(module).add(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, with all options."""
        self.load()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print one line, without the usage."""
        self.exit(2, f"{self.prog}: error: {message}: see `{self.prog} --help`\n")


def add_command(commands: "argparse._SubParsersAction[Any]", name: str, what: str, more: str = "") -> Parser:
    """Add a command, or an action of one."""
    text = f"{what[0].upper()}{what[1:]}. {more}".strip()
    parser: Parser = commands.add_parser(name, help=what, description=text)
    return parser


def add_later(commands: "argparse._SubParsersAction[Any]", command: Command) -> None:
    """Add a command whose module is loaded when it is called."""
    parser = add_command(commands, command.name, command.what, command.more)
    parser.module = command.module
