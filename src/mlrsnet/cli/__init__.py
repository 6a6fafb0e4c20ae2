"""The command line: one command per file.

Exit codes: 0 success; 1 the machine failed (disk, permission, missing package or data, a failed run); 2 a mistake in the command;
130 Ctrl-C.
"""

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import mlrsnet
from mlrsnet._files.untrusted import printable
from mlrsnet.cli import demo, doctor, metatrain, report, reproduce, runs, schedules, table, train
from mlrsnet.cli.parser import Parser
from mlrsnet.cli.together import refuse_several, who

COMMANDS = (demo, reproduce, train, metatrain, runs, report, schedules, table, doctor)


def main(words: Sequence[str] | None = None) -> int:
    """Run one command. A user's mistake is one line on stderr; `MLRSNET_DEBUG=1` shows where it came from."""
    arguments = parser().parse_args(words)
    try:
        with _plain_warnings():
            if not getattr(arguments, "under_torchrun", False):
                refuse_several(arguments.command)
            arguments.run(arguments)
    except KeyboardInterrupt as stop:
        print(f"mlrsnet: interrupted{who()}" + (f"; {stop}" if str(stop) else ""), file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output, such as `head`, is done
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at exit
        return 1
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
        if os.environ.get("MLRSNET_DEBUG"):
            raise
        print(f"mlrsnet: error{who()}: {' '.join(printable(str(error)).split())}", file=sys.stderr)
        return 2 if isinstance(error, ValueError | TypeError) else 1
    return 0


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print a warning as one line, without the source line, which the user of a command has not written."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *where, **more: f"mlrsnet: warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def parser() -> Parser:
    """The parser of all commands."""
    top = Parser(
        prog="mlrsnet",
        description="Learned learning-rate schedules for PyTorch.",
        epilog="`mlrsnet COMMAND --help` describes a command. Start with `mlrsnet demo`: a few minutes on a CPU.",
    )
    top.add_argument("--version", action="version", version=f"mlrsnet {mlrsnet.__version__}", help="print the version")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND", dest="command")
    for command in COMMANDS:
        command.add(commands)
    return top
