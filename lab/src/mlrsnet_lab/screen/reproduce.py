"""`mlrsnet reproduce` on a terminal."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from mlrsnet_lab.jobs import choose
from mlrsnet_lab.recipes import RECIPES, SCALES, STUDIES
from mlrsnet_lab.report import Report
from mlrsnet_lab.report.studies import columns
from mlrsnet_lab.reproduce import ALL, reproduce
from mlrsnet_lab.screen.progress import Total, bars, watchers
from mlrsnet_lab.screen.tables import plain, summary
from mlrsnet_lab.settings import Settings


def show_recipes() -> None:
    """One recipe per line, with the number of trainings at each scale."""
    for recipe in RECIPES.values():
        counts = [f"{scale} {choose(recipe, scale, recipe.seeds)[0].total}" for scale in SCALES]
        print(f"{recipe.name:12} {recipe.title} (trainings: {', '.join(counts)})")
    for one in STUDIES.values():
        print(f"{one.name:12} {one.title} (computed, not trained)")


def show_reproduce(name: str, scale: str, out: Path, settings: Settings, **which: Any) -> None:
    """Run a recipe, a study or all of them with progress bars; end with the tables. `which` are seeds and rows, see `reproduce`."""
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
    """The report's tables, without their curves."""
    for section in report.sections:
        for table in section.tables:
            console.print(summary(table, f"{section.title} ({scale}): {table.title}"))
    for computed in report.studies:
        for grid in computed.grids:
            console.print(plain(columns(grid), f"{computed.title} ({scale}): {grid.title}"))
