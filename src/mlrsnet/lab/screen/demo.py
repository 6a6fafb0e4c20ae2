"""`mlrsnet demo` on a terminal."""

import shutil
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mlrsnet.lab import records
from mlrsnet.lab.demo import LR_GRID, Run, compare, draw, learning, num_trainings, summarise, write_record
from mlrsnet.lab.records import Record
from mlrsnet.lab.screen.progress import Bar, bars
from mlrsnet.lab.trainer import resolve, run
from mlrsnet.lab.watch import Watcher
from mlrsnet.schedule import Schedule


def show_demo(epochs: int, seeds: int, schedule: Schedule | None, out: Path, device: str) -> None:
    """Learn, transfer, compare; keep the record up to date in `out`; end with a table and a picture."""
    resolve(device)  # a word that means no device is told before the work
    out.mkdir(parents=True, exist_ok=True)
    record, picture, file = out / "demo.json", out / "demo.png", out / "schedule.safetensors"
    console = Console()
    with bars(console) as progress:
        if schedule is None:
            shutil.rmtree(out / "learning", ignore_errors=True)
            run(learning(epochs), out / "learning", device=device, watchers=[Bar(progress, "learning")])
            schedule = Schedule.load(out / "learning" / records.SCHEDULE)
        schedule.save(file)
        learned = schedule
        write_record(record, [], learned, epochs, device)
        bar = progress.add_task("choosing initial LRs", total=num_trainings(seeds), now="")

        class Counter(Watcher):
            def end(self, record: Record) -> None:
                progress.advance(bar)

        def on_run(runs: list[Run]) -> None:
            write_record(record, runs, learned, epochs, device)
            progress.update(bar, description=f"seed {runs[-1].record.spec['seed'] + 1} of {seeds}")

        runs = compare(epochs, seeds, file, device, Counter(), on_run)
    console.print(demo_table(runs, learned))
    draw(picture, runs, learned)
    print(f"picture:  {picture}\nrecord:   {record}\nschedule: {file}")


def demo_table(runs: list[Run], schedule: Schedule) -> Table:
    """The rows of `summarise`."""
    seeds = len({run.record.spec["seed"] for run in runs})
    result = Table(
        title=f"Small CNN on the digits 5 to 9: last epoch, test data, {seeds} {'seed' if seeds == 1 else 'seeds'}",
        caption=f"initial LR: the best of {', '.join(f'{lr:g}' for lr in LR_GRID)} on validation data",
        box=SIMPLE_HEAD,
    )
    for name in ("schedule", "accuracy (%)", "train loss", "initial LR", "note"):
        result.add_column(name, justify="left" if name in ("schedule", "note") else "right", no_wrap=name != "note")
    for row in summarise(runs, schedule):
        accuracy = f"{row['test_accuracy']:.2f} ± {row['test_accuracy_std']:.2f}"
        lr = "none" if row["initial_lr"] is None else f"{row['initial_lr']:g}"
        result.add_row(row["schedule"], accuracy, f"{row['train_loss']:.4f}", lr, Text(row["note"]))
    return result
