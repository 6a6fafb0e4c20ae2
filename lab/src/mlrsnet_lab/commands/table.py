"""`mlrsnet table`."""

import argparse
from pathlib import Path

from mlrsnet.cli.parser import Parser, add_command
from mlrsnet_lab.commands.options import add_data, add_device, add_executor, screen, settings


def add(table: Parser) -> None:
    """Add its actions."""
    actions = table.add_subparsers(title="actions", required=True, metavar="ACTION")
    fill = add_command(
        actions,
        "fill",
        "train the rows that a table does not have yet",
        "Ctrl-C or --seconds stops it; the same command goes on.",
    )
    fill.add_argument("file", type=Path, help="an .npz file; made if it does not exist")
    fill.add_argument("--rows", metavar="N", type=int, default=90, help="trainings in all (default: 90)")
    fill.add_argument("--first", metavar="N", type=int, default=0, help="number of the first one (default: 0)")
    fill.add_argument(
        "--horizons",
        metavar="N",
        type=int,
        nargs=2,
        default=(50, 600),
        help="fewest and most steps of a training (default: 50 600)",
    )
    fill.add_argument("--families", metavar="NAMES", help="some families only, separated by commas")
    fill.add_argument("--seconds", metavar="N", type=float, help="begin no training after this time")
    add_device(fill)
    add_data(fill)
    add_executor(fill, "trainings")
    fill.set_defaults(run=_fill)
    fit = add_command(actions, "fit", "laws for the size of a step, judged on families they were not fitted on")
    fit.add_argument("files", type=Path, nargs="+", help="tables with the same columns")
    fit.set_defaults(run=_fit)


def _fill(arguments: argparse.Namespace) -> None:
    screen("table").show_fill(
        arguments.file,
        settings(arguments),
        first=arguments.first,
        rows=arguments.rows,
        horizons=tuple(arguments.horizons),
        families=arguments.families.split(",") if arguments.families else None,
        seconds=arguments.seconds,
    )


def _fit(arguments: argparse.Namespace) -> None:
    screen("table").show_laws(arguments.files)
