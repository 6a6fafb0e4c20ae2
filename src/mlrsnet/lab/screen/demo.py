"""`mlrsnet demo` on a terminal."""

import shutil
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mlrsnet.lab import records
from mlrsnet.lab.demo import LR_GRID, Run, compare, draw, learning, num_trainings, summarise, write_record
from mlrsnet.lab.records import Record
from mlrsnet.lab.screen.progress import Bar, bars
from mlrsnet.lab.trainer import run
from mlrsnet.lab.watch import Watcher
from mlrsnet.schedule import Schedule


def show_demo(epochs: int, seeds: int, schedule: Schedule | None, out: Path, device: str) -> None:
    """Learn, transfer, compare; keep the record up to date in `out`; end with a table and a picture."""
    out.mkdir(parents=True, exist_ok=True)
    record, picture, file = out / "demo.json", out / "demo.png", out / "schedule.safetensors"
    console = Console()
    with bars(console) as progress:
        if schedule is None:
            shutil.rmtree(out / "learning", ignore_errors=True)
            run(learning(epochs), out / "learning", device="cpu", watchers=[Bar(progress, "learning")])
            schedule = Schedule.load(out / "learning" / records.SCHEDULE)
        schedule.save(file)
        learned = schedule
        write_record(record, [], learned, epochs, device)
        bar = progress.add_task("choosing LRs", total=num_trainings(seeds))

        class Counter(Watcher):
            def end(self, record: Record) -> None:
                progress.advance(bar)

        def on_run(runs: list[Run]) -> None:
            write_record(record, runs, learned, epochs, device)
            progress.update(bar, description=f"seed {runs[-1].record.spec['seed'] + 1} of {seeds}")

        runs = compare(epochs, seeds, file, device, Counter(), on_run)
    console.print(demo_table(runs, learned))
    draw(picture, runs, learned)
    console.print(f"picture: {picture}\nrecord:  {record}", soft_wrap=True)


def demo_table(runs: list[Run], schedule: Schedule) -> Table:
    """The rows of `summarise`."""
    seeds = len({run.record.spec["seed"] for run in runs})
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
