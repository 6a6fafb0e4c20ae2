"""`mlrsnet demo` on a terminal."""

import shutil
from pathlib import Path
from statistics import mean

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from mlrsnet.horizon import Comparison
from mlrsnet.horizon.comparison import paired
from mlrsnet.lab import records
from mlrsnet.lab.demo import (
    FULL_HORIZON,
    GREEDY,
    GREEDY_EPOCHS,
    LR_GRID,
    Run,
    compare,
    draw,
    greedy_learning,
    horizon_learning,
    num_trainings,
    summarise,
    write_record,
)
from mlrsnet.lab.horizon import learn
from mlrsnet.lab.recipes.base import slug
from mlrsnet.lab.records import Record
from mlrsnet.lab.screen.horizon import HorizonBar
from mlrsnet.lab.screen.progress import Bar, bars
from mlrsnet.lab.trainer import resolve, run
from mlrsnet.lab.watch import Watcher
from mlrsnet.schedule import Schedule


def show_demo(generations: int, epochs: int, seeds: int, given: Schedule | None, out: Path, device: str) -> None:
    """Learn, transfer, compare; keep the record up to date in `out`; end with a table and a picture."""
    try:
        _show_demo(generations, epochs, seeds, given, out, device)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command begins anew; fewer --generations or --seeds take less time") from None


def _show_demo(generations: int, epochs: int, seeds: int, given: Schedule | None, out: Path, device: str) -> None:
    resolve(device)  # a word that means no device is told before the work
    out.mkdir(parents=True, exist_ok=True)
    record, picture, console = out / "demo.json", out / "demo.png", Console()
    with bars(console) as progress:
        learned = {given.card.name: given} if given else _learn(generations, out, device, progress)
        files = {name: out / f"{slug(name)}.safetensors" for name in learned}
        for name, schedule in learned.items():
            schedule.save(files[name])
        write_record(record, [], learned, epochs, device)
        bar = progress.add_task("choosing initial LRs", total=num_trainings(seeds, len(learned)), now="")

        class Counter(Watcher):
            def end(self, record: Record) -> None:
                progress.advance(bar)

        def on_run(runs: list[Run]) -> None:
            write_record(record, runs, learned, epochs, device)
            progress.update(bar, description=f"seed {runs[-1].record.spec['seed'] + 1} of {seeds}")

        runs = compare(epochs, seeds, files, device, Counter(), on_run)
    console.print(demo_table(runs, learned))
    draw(picture, runs, learned)
    print("\n".join([f"picture:  {picture}", f"record:   {record}", *(f"schedule: {file}" for file in files.values())]))


def _learn(generations: int, out: Path, device: str, progress: Progress) -> dict[str, Schedule]:
    """Both ways; what an earlier demo left is not used."""
    folders = {name: out / f"learning-{slug(name)}" for name in (FULL_HORIZON, GREEDY)}
    for folder in folders.values():
        shutil.rmtree(folder, ignore_errors=True)
    bar = HorizonBar(progress, "learning, full horizon")
    _, trainer = learn(horizon_learning(generations), folders[FULL_HORIZON], device=device, on_generation=bar)
    progress.console.print(transfer_table(trainer.comparisons[0], trainer.comparisons[-1]))
    greedy = greedy_learning(GREEDY_EPOCHS)
    run(greedy, folders[GREEDY], device=device, watchers=[Bar(progress, "learning, Algorithm 1")])
    return {name: Schedule.load(folder / records.SCHEDULE) for name, folder in folders.items()}


def transfer_table(before: Comparison, found: Comparison) -> Table:
    """Other small trainings, under the schedule before and after it was learned, and under hand-designed ones."""
    result = Table(
        title=f"{len(found.learned)} small trainings on the digits 5 to 9: mean validation loss, calibrated",
        caption="one LR: the best of six for these very trainings; oracle: the best for each of them",
        box=SIMPLE_HEAD,
    )
    for name in ("schedule", "one LR", "learned less it", "oracle"):
        result.add_column(name, justify="left" if name == "schedule" else "right")
    result.add_row(f"{FULL_HORIZON}, nothing to choose", f"{mean(found.learned):.4f}", "", "")
    change, error = paired(found.learned, before.learned)
    result.add_row("the same before learning", f"{mean(before.learned):.4f}", f"{change:+.4f} ± {error:.4f}", "")
    for kind in found.tuned:
        change, error = found.difference(kind)
        told = f"{change:+.4f} ± {error:.4f}"
        result.add_row(kind, f"{mean(found.tuned[kind]):.4f}", told, f"{mean(found.oracle[kind]):.4f}")
    return result


def demo_table(runs: list[Run], learned: dict[str, Schedule]) -> Table:
    """The rows of `summarise`."""
    seeds = len({run.record.spec["seed"] for run in runs})
    result = Table(
        title=f"Small CNN on the digits 5 to 9: last epoch, test data, {seeds} {'seed' if seeds == 1 else 'seeds'}",
        caption=f"initial LR: the best of {', '.join(f'{lr:g}' for lr in LR_GRID)} on validation data",
        box=SIMPLE_HEAD,
    )
    for name in ("schedule", "accuracy (%)", "loss", "initial LR", "note"):
        result.add_column(name, justify="left" if name in ("schedule", "note") else "right", no_wrap=name != "note")
    for row in summarise(runs, learned):
        accuracy = f"{row['test_accuracy']:.2f} ± {row['test_accuracy_std']:.2f}"
        lr = "none" if row["initial_lr"] is None else f"{row['initial_lr']:g}"
        result.add_row(row["schedule"], accuracy, f"{row['test_loss']:.4f}", lr, Text(row["note"]))
    return result
