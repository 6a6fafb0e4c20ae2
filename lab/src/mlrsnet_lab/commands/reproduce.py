"""`mlrsnet reproduce`: bars, then the tables."""

import argparse
import os
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
from mlrsnet_lab.devices import resolve
from mlrsnet_lab.executors.executor import LOCAL
from mlrsnet_lab.jobs import choose, in_order
from mlrsnet_lab.recipes import RECIPES, Recipe
from mlrsnet_lab.report import Report, layout
from mlrsnet_lab.report.layout import Column
from mlrsnet_lab.reproduce import ALL, NEXT, reproduce
from mlrsnet_lab.settings import DEFAULT, Settings

LEFT_TO_THE_REPORT = ("train loss", "s / epoch")


def add(reproduce: Parser) -> None:
    """Add its options."""
    reproduce.add_argument(
        "recipe",
        nargs="*",
        help="what to reproduce, such as table1; several; all; or next, which makes what is worth most next",
    )
    reproduce.add_argument("--list", action="store_true", help="list what can be reproduced, and train nothing")
    reproduce.add_argument(
        "--scale",
        metavar="SCALE",
        default="smoke",
        help="smoke (small data, minutes on a CPU), cpu (real data, hours on two cores), short (a GPU, fewer epochs) or paper (a "
        "GPU, the paper's own settings) (default: %(default)s)",
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
    reproduce.add_argument(
        "--seconds", metavar="N", type=float, help="stop after this time; the same command goes on where it stopped"
    )
    add_out(
        reproduce, None, "folder for runs and report (default: mlrsnet-RECIPE-SCALE; of several and of next: as of all)"
    )
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
    names, scale = arguments.recipe, arguments.scale
    if not names:
        raise ValueError("reproduce needs the name of a recipe: `mlrsnet reproduce --list` shows them")
    shared = len(names) > 1 or names[0] == NEXT
    out = arguments.out or Path(f"mlrsnet-{ALL if shared else names[0]}-{scale}")
    which = {"seeds": arguments.seeds, "only": arguments.only, "seconds": arguments.seconds}
    show_reproduce(names, scale, out, on_every_core(settings(arguments), scale), **which)


def on_every_core(settings: Settings, scale: str) -> Settings:
    """At scale cpu as many runs at once as there are cores, if nobody said how many: its networks are too small to share."""
    executor = settings.executor
    if scale != "cpu" or executor.name != LOCAL or executor.jobs is not None or resolve(settings.device).type != "cpu":
        return settings
    return replace(
        settings,
        executor=replace(
            executor, jobs=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        ),
    )


def show_recipes() -> None:
    """One recipe per line, with the number of trainings at each scale."""
    for name, recipe in RECIPES.items():
        print(f"{name:14} {recipe.title} ({_size(recipe)})")


def _size(recipe: Recipe) -> str:
    if recipe.measure is not None:
        return "computed, not trained"
    counts = [f"{scale} {len(in_order(choose(recipe, scale), recipe.seeds[0]))}" for scale in recipe.scales]
    return f"trainings: {', '.join(counts)}"


def show_reproduce(names: str | Sequence[str], scale: str, out: Path, settings: Settings, **which: Any) -> None:
    """Make recipes with progress bars; end with the tables. `which` are seeds, rows and seconds, see `reproduce`."""
    console = Console()

    def tell(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    try:
        with bars(console) as progress:
            total = Total(progress)
            watch = watchers(progress, settings)
            watched = replace(settings, watch=watch, tell=tell, count=total, overall=total.ended)
            done = reproduce(names, scale, out, watched, **which)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"the same command continues where it stopped, `mlrsnet report {out}` shows what there is"
        ) from None
    if done.report is not None and done.page is not None:
        print_tables(console, done.report, scale)
        print(f"report: {done.page}")
    if done.stopped:
        print("time is up; the same command goes on where it stopped")
    if ALL in names:
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
