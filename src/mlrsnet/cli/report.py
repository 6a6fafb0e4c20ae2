"""`mlrsnet report`."""

import argparse
from pathlib import Path

from mlrsnet.cli.options import add_out, screen
from mlrsnet.cli.parser import Parser, add_command


def add(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command."""
    report = add_command(commands, "report", "make a page of tables and pictures from runs", "It trains nothing.")
    report.add_argument("folder", type=Path, help="runs are found at all depths below it")
    add_out(report, None, "folder for report.html and report.md (default: the same)")
    report.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    screen("report").show_report(arguments.folder, arguments.out)
