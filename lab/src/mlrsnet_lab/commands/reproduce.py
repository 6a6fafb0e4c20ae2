"""`mlrsnet reproduce`: bars, then the tables."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mlrsnet.cli.parser import Parser
from mlrsnet_lab.commands.options import add_data, add_device, add_executor, add_out, add_tensorboard, settings
from mlrsnet_lab.commands.progress import Total, bars, watchers
from mlrsnet_lab.jobs import choose, in_order
from mlrsnet_lab.recipes import RECIPES, SCALES, Recipe
from mlrsnet_lab.report import Report, layout
from mlrsnet_lab.report.layout import Column
from mlrsnet_lab.reproduce import ALL, reproduce
from mlrsnet_lab.settings import DEFAULT, Settings

LEFT_TO_THE_REPORT = ("train loss", "s / epoch")


def add(reproduce: Parser) -> None:
    """Add its options."""
    reproduce.add_argument("recipe", nargs="?", help="what to reproduce, such as table1, or all")
    reproduce.add_argument("--list", action="store_true", help="list what can be reproduced, and train nothing")
    reproduce.add_argument(
        "--scale",
        metavar="SCALE",
        default="smoke",
        help="smoke (small data, minutes on a CPU), short (a GPU, fewer epochs) or paper (a GPU, "
        "the paper's own settings) (default: %(default)s)",
    )
    reproduce.add_argument(
        "--seeds",
        metavar="N",
        type=int,
        nargs="+",
        help="such as --seeds 0 1 (default: those of the recipe, mostly 0 1 2, three as in the paper)",
    )
    reproduce.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this row or column; may be repeated"
    )
    add_out(reproduce, None, "folder for runs and report (default: mlrsnet-RECIPE-SCALE)")
    add_device(reproduce)
    add_data(reproduce)
    add_tensorboard(reproduce)
    add_executor(reproduce, "runs").add_argument(
        "--checkpoint-seconds",
        metavar="X",
        type=float,
        default=DEFAULT.checkpoint_seconds,
        help="a killed run loses about this much work (default: %(default)g)",
    )
    reproduce.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    if arguments.list:
        show_recipes()
        return
    name, scale = arguments.recipe, arguments.scale
    if name is None:
        raise ValueError("reproduce needs the name of a recipe: `mlrsnet reproduce --list` shows them")
    out = arguments.out or Path(f"mlrsnet-{name}-{scale}")
    show_reproduce(name, scale, out, settings(arguments), seeds=arguments.seeds, only=arguments.only)


def show_recipes() -> None:
    """One recipe per line, with the number of trainings at each scale."""
    for name, recipe in RECIPES.items():
        print(f"{name:14} {recipe.title} ({_size(recipe)})")


def _size(recipe: Recipe) -> str:
    if recipe.measure is not None:
        return "computed, not trained"
    seeds = recipe.seeds
    counts = [f"{scale} {len(in_order(choose(recipe, scale, seeds), seeds[0]))}" for scale in SCALES]
    return f"trainings: {', '.join(counts)}"


def show_reproduce(name: str, scale: str, out: Path, settings: Settings, **which: Any) -> None:
    """Make a recipe, or all, with progress bars; end with the tables. `which` are seeds and rows, see `reproduce`."""
    console = Console()

    def tell(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    try:
        with bars(console) as progress:
            watched = replace(settings, watch=watchers(progress, settings), tell=tell, count=Total(progress))
            done = reproduce(name, scale, out, watched, **which)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"the same command continues where it stopped, `mlrsnet report {out}` shows what there is"
        ) from None
    if done.report is not None and done.page is not None:
        print_tables(console, done.report, scale)
        print(f"report: {done.page}")
    if name == ALL:
        print(f"everything: {len(done.records)} runs in {done.seconds:.0f} s")
    done.raise_failures()


def print_tables(console: Console, report: Report, scale: str) -> None:
    """The report's tables, without their curves, and without trials of settings."""
    for section in report.sections:
        for table in (table for table in section.tables if not table.trials):
            console.print(summary(table, f"{section.title} ({scale}): {table.title}"))
        for grid in section.grids:
            console.print(plain(layout.grid_columns(grid), f"{section.title} ({scale}): {grid.title}"))


def summary(results: layout.Table, title: str) -> Table:
    """A table of the report, with means over the seeds."""
    shown = [column for column in layout.columns(results) if column.title not in LEFT_TO_THE_REPORT]
    return plain(shown, title, "training loss, seconds, curves: in the report")


def plain(shown: Sequence[Column], title: str, caption: str = "curves: in the report") -> Table:
    """A table with these columns."""
    table = Table(title=title, box=SIMPLE_HEAD, caption=caption)
    for column in shown:
        width = 12 if column.numeric and column.title != "seeds" else 0
        table.add_column(column.title, justify="right" if column.numeric else "left", min_width=width)
    for index in range(len(shown[0].cells)):
        cells = [(column.cells[index], "bold" if index in column.bold else "") for column in shown]
        table.add_row(*(Text(text, style) for text, style in cells))
    return table
