"""`mlrsnet demo` on a terminal."""

from pathlib import Path
from statistics import mean

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from mlrsnet.schedule import Schedule
from mlrsnet_lab.demo import (
    FULL_HORIZON,
    LR_GRID,
    RECORD,
    DemoRun,
    learn_both,
    num_trainings,
    schedule_files,
    summarise,
    transfer,
)
from mlrsnet_lab.devices import resolve
from mlrsnet_lab.horizon import Comparison
from mlrsnet_lab.horizon.comparison import paired
from mlrsnet_lab.records import Record
from mlrsnet_lab.screen.demo_picture import draw
from mlrsnet_lab.screen.metatrain import MetaTrainingBar
from mlrsnet_lab.screen.progress import Bar, bars
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.watch import Watcher


def show_demo(generations: int, epochs: int, seeds: int, given: Schedule | None, out: Path, settings: Settings) -> None:
    """Learn, transfer, compare; end with a table and a picture. A given schedule is transferred instead of learning any."""
    try:
        _show_demo(generations, epochs, seeds, given, out, settings)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command starts over; fewer --generations or --seeds take less time") from None


def _show_demo(
    generations: int, epochs: int, seeds: int, given: Schedule | None, out: Path, settings: Settings
) -> None:
    resolve(settings.device)  # a wrong device fails before the work
    out.mkdir(parents=True, exist_ok=True)
    picture, console = out / "demo.png", Console()
    with bars(console) as progress:
        learned = {given.card.name: given} if given else _learn(generations, out, settings, progress)
        counter = Counter(progress, num_trainings(seeds, len(learned)), seeds)
        runs = transfer(learned, epochs, seeds, out, settings, watcher=counter, on_run=counter.on_run)
    console.print(demo_table(runs, learned))
    draw(picture, runs, learned)
    files = schedule_files(learned, out).values()
    print("\n".join([f"picture:  {picture}", f"record:   {out / RECORD}", *(f"schedule: {file}" for file in files)]))


def _learn(generations: int, out: Path, settings: Settings, progress: Progress) -> dict[str, Schedule]:
    generation_bar = MetaTrainingBar(progress, "learning, full horizon")
    step_bar = Bar(progress, "learning, Algorithm 1")
    learned = learn_both(generations, out, settings, on_generation=generation_bar, watcher=step_bar)
    progress.console.print(transfer_table(learned.before, learned.after))
    return learned.schedules


class Counter(Watcher):
    """A bar counted in trainings."""

    def __init__(self, progress: Progress, total: int, seeds: int) -> None:
        self.progress, self.seeds = progress, seeds
        self.bar = progress.add_task("choosing initial LRs", total=total, now="")

    def end(self, record: Record) -> None:
        """Count a training."""
        self.progress.advance(self.bar)

    def on_run(self, runs: list[DemoRun]) -> None:
        """Show the seed."""
        self.progress.update(self.bar, description=f"seed {runs[-1].record.spec['seed'] + 1} of {self.seeds}")


def transfer_table(before: Comparison, found: Comparison) -> Table:
    """Other small trainings under the schedule, before and after it was learned, and under hand-designed schedules."""
    result = Table(
        title=f"{len(found.learned)} small trainings on the digits 5 to 9: mean validation loss, calibrated",
        caption="one LR: the best of six for these trainings together; oracle: the best for each of them",
        box=SIMPLE_HEAD,
    )
    for name in ("schedule", "one LR", "learned minus it", "oracle"):
        result.add_column(name, justify="left" if name == "schedule" else "right")
    result.add_row(f"{FULL_HORIZON}, not tuned", f"{mean(found.learned):.4f}", "", "")
    change, error = paired(found.learned, before.learned)
    result.add_row("the same before learning", f"{mean(before.learned):.4f}", f"{change:+.4f} ± {error:.4f}", "")
    for kind in found.tuned:
        change, error = found.difference(kind)
        told = f"{change:+.4f} ± {error:.4f}"
        result.add_row(kind, f"{mean(found.tuned[kind]):.4f}", told, f"{mean(found.oracle[kind]):.4f}")
    return result


def demo_table(runs: list[DemoRun], learned: dict[str, Schedule]) -> Table:
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
