"""Command line: words -> calls.

Exit codes: 0 done; 1 the machine said no (disk, permission, missing package or data); 2 a mistake in the words; 130 Ctrl-C.
"""

import argparse
import os
import sys
from collections.abc import Sequence

import mlrsnet
from mlrsnet.cli import lab, schedules


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one line on stderr (`MLRSNET_DEBUG=1` shows where it came from)."""
    arguments = parser().parse_args(words)
    try:
        arguments.run(arguments)
    except KeyboardInterrupt as stop:
        print("mlrsnet: interrupted" + (f"; {stop}" if str(stop) else ""), file=sys.stderr)
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
    lab.add(commands)
    schedules.add(commands)
    return top
