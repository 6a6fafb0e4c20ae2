"""`mlrsnet reproduce` and `mlrsnet report` on a terminal."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from mlrsnet.lab import records
from mlrsnet.lab.recipes import RECIPES, SCALES
from mlrsnet.lab.report import read_report, write_report
from mlrsnet.lab.reproduce import Job, choose, reproduce
from mlrsnet.lab.screen.progress import Bar, bars
from mlrsnet.lab.screen.tables import summary
from mlrsnet.lab.screen.train import boards, raise_failed
from mlrsnet.lab.watch import Watcher


def show_recipes() -> None:
    """A recipe a line, with what each scale would run."""
    for recipe in RECIPES.values():
        counts = [f"{scale} {len(choose(recipe, scale, recipe.seeds, ()))}" for scale in SCALES]
        print(f"{recipe.name:12} {recipe.title} (runs: {', '.join(counts)})")


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
    """Run a recipe and report on it."""
    console = Console()
    try:
        with bars(console) as progress:

            def watch(job: Job) -> list[Watcher]:
                folder = out / job.cell.folder(job.seed)
                return [Bar(progress, job.title), *boards(folder / "tensorboard", tensorboard)]

            found = reproduce(name, scale, out, seeds=seeds, only=only, device=device, root=root, watch=watch)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"the same command goes on where it was stopped, `mlrsnet report {out}` shows what is there"
        ) from None
    failed = [f"{record.folder}: {record.data.get('error')}" for record in found if record.status == records.FAILED]
    if any(records.find(out)):
        page, _ = write_report(out)
        for section in read_report(out).sections:
            for table in section.tables:
                console.print(summary(table, f"{section.title} ({scale}): {table.title}"))
        print(f"report: {page}")
    raise_failed(failed, len(found))


def show_report(folder: Path, out: Path | None) -> None:
    """Write the report and say where."""
    for path in write_report(folder, out):
        print(f"report: {path}")
