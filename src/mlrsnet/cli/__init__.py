"""The command line. Here are the commands that need no lab, one per file; `others` finds those of other packages.

Exit codes: 0 success; 1 the machine failed (disk, permission, missing package or data, a failed run); 2 a mistake in the command;
130 Ctrl-C.
"""

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import mlrsnet
from mlrsnet.cli import others
from mlrsnet.cli.parser import Command, Parser, add_later
from mlrsnet.files.untrusted import printable

COMMANDS = (
    Command("schedules", "mlrsnet.cli.schedules", "list, show and import schedules"),
    Command(
        "simulate",
        "mlrsnet.cli.simulate",
        "the LR a schedule gives for each of a list of losses",
        "Prints CSV: step, loss, LR.",
    ),
    Command(
        "doctor",
        "mlrsnet.cli.doctor",
        "print versions, devices and installed extras, and run a short self-test",
        "Paste what it prints into a bug report.",
    ),
)
START = "Start with `mlrsnet demo`: a few minutes on a CPU."
LAB = f"Trainings and the demo come with the lab: {others.TO_INSTALL}."


def main(words: Sequence[str] | None = None) -> int:
    """Run one command. A user's mistake is one line on stderr; `MLRSNET_DEBUG=1` shows where it came from."""
    try:
        arguments = parser().parse_args(words)
        with _plain_warnings():
            if not getattr(arguments, "under_torchrun", False):
                _refuse_several(arguments.command)
            arguments.run(arguments)
    except KeyboardInterrupt as stop:
        print(f"mlrsnet: interrupted{_who()}" + (f"; {stop}" if str(stop) else ""), file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output, such as `head`, is done
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at exit
        return 1
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
        if os.environ.get("MLRSNET_DEBUG"):
            raise
        print(f"mlrsnet: error{_who()}: {' '.join(printable(str(error)).split())}", file=sys.stderr)
        return 2 if isinstance(error, ValueError | TypeError) else 1
    return 0


def parser() -> Parser:
    """The parser of all commands."""
    missing = others.missing()
    top = Parser(
        prog="mlrsnet",
        description="Learned learning-rate schedules for PyTorch.",
        epilog=f"`mlrsnet COMMAND --help` describes a command. {LAB if missing else START}",
    )
    top.add_argument("--version", action="version", version=f"mlrsnet {mlrsnet.__version__}", help="print the version")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND", dest="command")
    for command in (*COMMANDS, *others.installed()):
        add_later(commands, command)
    for name in missing:
        commands.add_parser(name).module = others.__name__
    return top


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print a warning as one line, without the source line, which the user of a command has not written."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *where, **more: f"mlrsnet: warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def _refuse_several(command: str) -> None:
    """Raise under torchrun: its processes would all do the same work, in the same folder."""
    count = _launched()[1]
    if count > 1:
        raise ValueError(f"mlrsnet {command} must be one process, got {count} from torchrun: start it without torchrun")


def _who() -> str:
    """` (rank 1 of 4)` for a process that is not the first; else nothing."""
    rank, count = _launched()
    return f" (rank {rank} of {count})" if rank else ""


def _launched() -> tuple[int, int]:
    """This process among those that torchrun started: its number, and how many there are."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
