"""The demo on a terminal: a progress bar, a table, and where the picture is."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from mlrsnet.lab.demo import LR_GRID, Run, draw, num_trainings, run_demo, summarise, write_record
from mlrsnet.schedule import Schedule


def show_demo(epochs: int, seeds: int, schedule: Schedule | None, out: Path) -> None:
    """Run the demo, keep its record up to date in `out`, end with a table and a picture."""
    out.mkdir(parents=True, exist_ok=True)
    record, picture = out / "demo.json", out / "demo.png"
    console = Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    write_record(record, [], schedule, epochs)  # an unwritable folder is told before the work, not after
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("choosing LRs", total=epochs * num_trainings(seeds))

        def on_run(runs: list[Run]) -> None:
            write_record(record, runs, schedule, epochs)
            progress.update(bar, description=f"seed {runs[-1].seed + 1} of {seeds}")

        runs = run_demo(epochs, seeds, schedule, on_epoch=lambda: progress.advance(bar), on_run=on_run)
    console.print(table(runs, schedule))
    draw(picture, runs, schedule)
    console.print(f"picture: {picture}\nrecord:  {record}", soft_wrap=True)


def table(runs: list[Run], schedule: Schedule | None) -> Table:
    """The rows of `summarise`, last epoch first."""
    seeds = len({run.seed for run in runs})
    result = Table(title=f"Small CNN on digits: last epoch, test data, {seeds} seeds")
    result.add_column("schedule")
    result.add_column("accuracy (%)", justify="right")
    result.add_column("training loss", justify="right")
    result.add_column("initial LR", justify="right")
    result.add_column("note")
    result.caption = (
        f"initial LR: best of {', '.join(map(str, LR_GRID))} on validation data; the learned schedule finds its own"
    )
    for row in summarise(runs, schedule):
        accuracy = f"{row['test_accuracy']:.2f} ± {row['test_accuracy_std']:.2f}"
        result.add_row(row["schedule"], accuracy, f"{row['train_loss']:.4f}", _text(row["initial_lr"]), row["note"])
    return result


def _text(lr: float | None) -> str:
    return "-" if lr is None else f"{lr:g}"
