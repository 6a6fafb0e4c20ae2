"""`mlrsnet reproduce` and `mlrsnet report` on a terminal."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from mlrsnet import _check
from mlrsnet._files.storage import write_atomically
from mlrsnet.card import versions
from mlrsnet.lab import records
from mlrsnet.lab.recipes import RECIPES, SCALES, STUDIES
from mlrsnet.lab.report import read_report, save_report, write_report
from mlrsnet.lab.report.studies import grids
from mlrsnet.lab.reproduce import ALL, Job, choose, reproduce, study
from mlrsnet.lab.screen.progress import Bar, bars
from mlrsnet.lab.screen.tables import plain, summary
from mlrsnet.lab.screen.train import boards, raise_failed
from mlrsnet.lab.watch import Watcher


def show_recipes() -> None:
    """A recipe a line, with what each scale would run."""
    for recipe in RECIPES.values():
        counts = [f"{scale} {choose(recipe, scale, recipe.seeds, ())[0].total}" for scale in SCALES]
        print(f"{recipe.name:12} {recipe.title} (trainings: {', '.join(counts)})")
    for one in STUDIES.values():
        print(f"{one.name:12} {one.title} (computed, not trained)")


def show_reproduce(
    name: str,
    scale: str,
    out: Path,
    *,
    seeds: Sequence[int] | None,
    only: Sequence[str],
    device: str,
    root: Path | None,
    tensorboard: bool,
) -> None:
    """Run a recipe and report on it; `all`: every one, in folders of their own, with one report on all of them."""
    console, found, not_run, start = Console(), [], [], time.perf_counter()
    whole = name == ALL
    if only and (whole or name in STUDIES):
        raise ValueError(
            f"--only belongs to a single recipe of trainings, got {name}: leave it out, or name the recipe"
        )
    if not whole:
        _check.one_of("recipe", name, (*RECIPES, *STUDIES))
    if whole and seeds is None and scale == "smoke":
        seeds = (0,)

    def tell(outlook: str) -> None:
        console.print(outlook, markup=False, highlight=False)

    try:
        with bars(console) as progress:
            for one in (*RECIPES, *STUDIES) if whole else [name]:
                folder = out / one if whole else out
                if one in STUDIES:
                    study(one, scale, folder, seed=seeds[0] if seeds else 0)
                    continue

                def watch(job: Job, folder: Path = folder) -> list[Watcher]:
                    place = folder / job.cell.folder(job.seed)
                    return [Bar(progress, job.title), *boards(place / "tensorboard", tensorboard)]

                try:
                    found += reproduce(
                        one, scale, folder, seeds=seeds, only=only, device=device, root=root, watch=watch, tell=tell
                    )
                except (FileNotFoundError, ImportError) as error:  # data or a package that only some recipes need
                    if not whole:
                        raise
                    not_run.append(f"{one}: {error}")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"the same command goes on where it was stopped, `mlrsnet report {out}` shows what is there"
        ) from None
    failed = [f"{record.folder}: {record.data.get('error')}" for record in found if record.status == records.FAILED]
    if out.is_dir() and any(path for kind in (records.RECORD, records.STUDY) for path in out.rglob(kind)):
        _print_tables(console, out, scale)
    if whole:
        _keep_time(out, scale, time.perf_counter() - start, len(found))
    raise_failed([*failed, *not_run], len(found) + len(not_run))


def _keep_time(out: Path, scale: str, seconds: float, runs: int) -> None:
    """How long everything took, and on what."""
    cores = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    told = {
        "scale": scale,
        "seconds": seconds,
        "runs": runs,
        "cpu": cores,
        "versions": versions(),
        "commit": records.commit(),
    }
    write_atomically(out / "all.json", records.dumps(told, indent=1).encode())
    print(f"everything: {runs} runs in {seconds:.0f} s")


def _print_tables(console: Console, out: Path, scale: str) -> None:
    report = read_report(out)
    page, _ = save_report(report, out)
    for section in report.sections:
        for table in section.tables:
            console.print(summary(table, f"{section.title} ({scale}): {table.title}"))
    for computed in report.studies:
        for grid in grids(computed):
            console.print(plain(grid.columns, f"{computed.title} ({scale}): {grid.title}"))
    print(f"report: {page}")


def show_report(folder: Path, out: Path | None) -> None:
    """Write the report and say where."""
    for path in write_report(folder, out):
        print(f"report: {path}")
