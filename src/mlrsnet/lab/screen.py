"""Demo and meta-training on a terminal: progress bars, tables, and where the results are."""

from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from mlrsnet.lab.demo import LR_GRID, Run, compare, draw, learn, num_trainings, summarise, write_record
from mlrsnet.lab.learn import Learner, Settings
from mlrsnet.schedule import Schedule
from mlrsnet.show import describe


def show_metatrain(settings: Settings, out: Path) -> None:
    """Meta-train on digits into `out`; a checkpoint beside it lets an interrupted run go on."""
    console, learner = Console(), Learner(settings)
    checkpoint = out.with_name(out.name + ".checkpoint")
    if not checkpoint.exists():
        learner.save(checkpoint)  # an unwritable folder is told before the work, not after
    with _progress(console) as progress:
        _follow(progress, learner, checkpoint)
    learner.schedule().save(out)
    checkpoint.unlink()
    lrs = learner.curves.lr
    console.print(describe(learner.schedule()), soft_wrap=True, highlight=False)
    console.print(f"LR           {lrs[0]:.4g} at the start, {lrs[len(lrs) // 2]:.4g} halfway, {lrs[-1]:.4g} at the end")
    console.print(f"schedule:    {out}", soft_wrap=True)


def show_demo(epochs: int, seeds: int, schedule: Schedule | None, out: Path, device: str) -> None:
    """Learn, transfer, compare; keep the record up to date in `out`; end with a table and a picture."""
    out.mkdir(parents=True, exist_ok=True)
    record, picture = out / "demo.json", out / "demo.png"
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    console = Console()
    with _progress(console) as progress:
        if schedule is None:
            learner = learn(epochs)
            _follow(progress, learner, None)
            schedule = learner.schedule()
            schedule.save(out / "schedule.safetensors")
        learned = schedule
        write_record(record, [], learned, epochs, device)
        bar = progress.add_task("choosing LRs", total=epochs * num_trainings(seeds))

        def on_run(runs: list[Run]) -> None:
            write_record(record, runs, learned, epochs, device)
            progress.update(bar, description=f"seed {runs[-1].seed + 1} of {seeds}")

        runs = compare(epochs, seeds, learned, device, lambda: progress.advance(bar), on_run)
    console.print(table(runs, learned))
    draw(picture, runs, learned)
    console.print(f"picture: {picture}\nrecord:  {record}", soft_wrap=True)


def table(runs: list[Run], schedule: Schedule) -> Table:
    """The rows of `summarise`."""
    seeds = len({run.seed for run in runs})
    result = Table(title=f"Small CNN on the digits 5 to 9: last epoch, test data, {seeds} seeds")
    result.add_column("schedule")
    result.add_column("accuracy (%)", justify="right")
    result.add_column("training loss", justify="right")
    result.add_column("initial LR", justify="right")
    result.add_column("note")
    grid = ", ".join(f"{lr:g}" for lr in LR_GRID)
    result.caption = f"initial LR: best of {grid} on validation data; the learned schedule has none to choose"
    for row in summarise(runs, schedule):
        accuracy = f"{row['test_accuracy']:.2f} ± {row['test_accuracy_std']:.2f}"
        lr = "-" if row["initial_lr"] is None else f"{row['initial_lr']:g}"
        result.add_row(row["schedule"], accuracy, f"{row['train_loss']:.4f}", lr, row["note"])
    return result


def _follow(progress: Progress, learner: Learner, checkpoint: Path | None) -> None:
    bar = progress.add_task("learning", total=learner.settings.epochs)
    for done in learner.run(checkpoint):
        meta = learner.meta
        slope = "" if meta.last_hypergradient is None else f", dL/dLR {meta.last_hypergradient:+.2g}"
        lr = f"LR {learner.curves.lr[-1]:.3g}" if learner.curves.lr else ""
        progress.update(bar, completed=done, description=f"learning  {lr}{slope}")


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
