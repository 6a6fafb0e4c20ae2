"""`mlrsnet table`: a line per training, a line per law."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlrsnet.cli.parser import Parser, add_command
from mlrsnet_lab import checks
from mlrsnet_lab.commands.options import add_data, add_device, add_executor, settings
from mlrsnet_lab.table.columns import Sizing, grid
from mlrsnet_lab.table.compare import compare
from mlrsnet_lab.table.file import TrainingTable, merged
from mlrsnet_lab.table.fill import OnRow, fill
from mlrsnet_lab.table.kinds import FAMILIES, Kind, draw


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
    """Fill a table, with a line for each training."""
    asked = arguments.families.split(",") if arguments.families else FAMILIES
    families = [checks.one_of("families", family, FAMILIES) for family in asked]
    numbers = range(arguments.first, arguments.first + checks.whole_number("rows", arguments.rows))
    kinds = [draw(number, horizons=tuple(arguments.horizons), families=families) for number in numbers]
    seconds = float("inf") if arguments.seconds is None else checks.positive("seconds", arguments.seconds)
    columns, where = grid(), settings(arguments)
    try:
        with where.executor.crew(where.device) as crew:
            how: dict[str, Any] = {"device": where.device, "root": where.root, "crew": crew, "on_row": _tell(columns)}
            table = fill(arguments.file, kinds, columns, seconds=seconds, **how)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command continues where it stopped") from None
    print(f"{len(table)} trainings x {len(columns)} columns: {arguments.file}")


def _tell(columns: Sequence[Sizing]) -> OnRow:
    names = [str(column) for column in columns]

    def tell(kind: Kind, fitness: np.ndarray) -> None:
        best = int(fitness.argmin())
        what = f"{kind.number:>6} {kind.family:12} {kind.optimizer:6} {kind.total_steps:>6} steps"
        print(f"{what}  best {fitness[best]:.3f} at {names[best]}", flush=True)

    return tell


def _fit(arguments: argparse.Namespace) -> None:
    """Every law, its mean and median gap on families it was not fitted on, and its exponents."""
    table = merged([TrainingTable.load(file) for file in arguments.files])
    print(f"{len(table)} trainings\n{'mean':>7} {'median':>7} {'worst':>7}  law")
    for law in compare(table):
        print(f"{law.mean:7.4f} {law.median:7.4f} {law.worst:7.2f}  {law.name}{law.in_words()}")
