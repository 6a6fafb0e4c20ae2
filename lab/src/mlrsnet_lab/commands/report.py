"""`mlrsnet report`."""

import argparse
from pathlib import Path

from mlrsnet.cli.parser import Parser
from mlrsnet_lab.commands.options import add_out
from mlrsnet_lab.report import write_report


def add(report: Parser) -> None:
    """Add its options."""
    report.add_argument("folder", type=Path, help="runs are found at all depths below it")
    add_out(report, None, "folder for report.html and report.md (default: the same)")
    report.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    for path in write_report(arguments.folder, arguments.out):
        print(f"report: {path}")
