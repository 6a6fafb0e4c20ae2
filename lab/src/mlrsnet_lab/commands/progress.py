"""Trainings on a terminal: one progress bar each, and in the end a line each."""

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from mlrsnet_lab.board import Board
from mlrsnet_lab.executors import Counts
from mlrsnet_lab.processes import launched
from mlrsnet_lab.records import FINISHED, Record
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.several import Outcome
from mlrsnet_lab.watch import Planned, Watch, Watcher

SHOWN = 12
"""Bars on the screen at once. A terminal cuts off what exceeds its height, and the last bar is the one that moves."""


class Bars(Progress):
    """Prints nothing, not even an empty line, if no training began, or if there is no terminal."""

    def stop(self) -> None:
        """Take the bars off the screen, or leave them where they ended."""
        if self.tasks and not self.disable:
            super().stop()
        else:
            self.live.stop()


def bars(console: Console) -> Progress:
    """A place for bars. Titles are printed as they are, brackets too. Redirected, there is a line for every run instead."""
    title = Column(max_width=36, no_wrap=True, overflow="ellipsis")
    return Bars(
        TextColumn("{task.description}", markup=False, table_column=title),
        BarColumn(bar_width=6),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[now]}", markup=False),
        console=console,
        disable=not console.is_terminal,
    )


def watchers(progress: Progress, settings: Settings, *more: Watcher) -> Watch:
    """For every run a bar, and event files in its folder if the settings say so."""

    def watch(run: Planned) -> list[Watcher]:
        bar = Bar(progress, run.title) if progress.console.is_terminal else Line(progress.console, run.title)
        return [*more, bar, Board(run.folder / "tensorboard")] if settings.tensorboard else [*more, bar]

    return watch


class Total:
    """A bar for several runs; it appears with the second one."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task: TaskID | None = None

    def __call__(self, counts: Counts) -> None:
        """Say how many run now."""
        if counts.running > 1 or self.task is not None:
            again = f", {counts.again} tried again" if counts.again else ""
            self._update(now=f"{counts.running} running, {counts.done} done{again}")

    def ended(self, done: int, total: int) -> None:
        """Move the bar: so many runs of so many have ended."""
        if total > 1:
            self._update(completed=done, total=total)

    def _update(self, **changes: Any) -> None:
        if self.task is None:
            self.task = self.progress.add_task("all runs", total=None, now="", stays=True)
        self.progress.update(self.task, **changes)


def make_room(progress: Progress) -> None:
    """Take the oldest bars off the screen, first those of runs that have ended."""
    bars = [task for task in progress.tasks if not task.fields.get("stays")]
    for task in sorted(bars, key=lambda task: not task.finished)[: 1 - SHOWN]:
        progress.remove_task(task.id)


class Line(Watcher):
    """One training's line when it has ended: title, status, result, seconds."""

    def __init__(self, console: Console, title: str) -> None:
        self.console, self.title = console, title
        self.moved = False

    def epoch(self, line: dict[str, Any], losses: list[float], lrs: list[float]) -> None:
        """See `Watcher`."""
        self.moved = True

    def end(self, record: Record) -> None:
        """Print it; say if the run was finished before."""
        seconds, last = record.entry("timing").get("seconds", 0.0), record.result.get("last")
        status = record.status + ("" if self.moved or not record.ended else " before")
        words = status if last is None else f"{status} {_metric(last, record.data)}"  # null if it was not finite
        self.console.print(f"{self.title}: {words}, {seconds:.0f} s", markup=False, highlight=False, soft_wrap=True)


def _metric(value: float, data: dict[str, Any]) -> str:
    return f"{value:.2f} %" if data["metric"]["unit"] == "%" else f"ppl {value:.1f}"


class Bar(Watcher):
    """One training's bar, counted in steps, with the loss, LR and metric of the last epoch."""

    def __init__(self, progress: Progress, title: str) -> None:
        self.progress, self.title = progress, title
        self.data: dict[str, Any] = {}
        self.moved = False

    def begin(self, record: Record, step: int, total_steps: int) -> None:
        """Add the bar."""
        make_room(self.progress)
        self.data = record.data
        self.task = self.progress.add_task(self.title, total=total_steps, completed=step, now="")

    def steps(self, step: int) -> None:
        """Move the bar."""
        self._update(completed=step)

    def epoch(self, line: dict[str, Any], losses: list[float], lrs: list[float]) -> None:
        """Show the epoch's numbers."""
        words = [f"loss {line['train_loss']:.2g}", f"LR {line['lr']:.2g}"]
        metric = line.get("test_metric", math.nan)
        if math.isfinite(metric):
            words.append(_metric(metric, self.data))
        self._update(completed=line["step"], now=" ".join(words))
        self.moved = True

    def end(self, record: Record) -> None:
        """Show the status of a run that did not finish, or was finished before."""
        if record.status != FINISHED or not self.moved:
            self._update(now=record.status + ("" if self.moved or not record.ended else " before"))

    def _update(self, **changes: Any) -> None:
        if self.task in self.progress.task_ids:  # not if it had to make room
            self.progress.update(self.task, **changes)


def show_outcome(folder: Path, settings: Settings, make: Callable[[Settings], Outcome], *more: Watcher) -> None:
    """Make runs in or below a folder with a progress bar each; end with a line for each, and with what failed."""
    with _resumable(folder, settings), bars(Console()) as progress:
        outcome = make(replace(settings, watch=watchers(progress, settings, *more)))
    if outcome.records:
        print("\n".join(run_lines(outcome.records)))
    outcome.raise_failures()


@contextmanager
def _resumable(folder: Path, settings: Settings) -> Iterator[None]:
    """On Ctrl-C, tell the command that continues."""
    try:
        yield
    except KeyboardInterrupt:
        if launched().count > 1:
            raise KeyboardInterrupt("the same torchrun command continues where it stopped") from None
        data = ["--data", str(settings.root)] if settings.root else []
        command = shlex.join(["mlrsnet", "runs", "resume", str(folder), *data])
        raise KeyboardInterrupt(f"continue with: {command}") from None


def run_lines(found: Sequence[Record]) -> list[str]:
    """A heading and one line per run: status, epochs, test metric of the last and the best epoch, folder.

    The folder comes last and is never cut, so that it can be copied and other programs can search the lines.
    """
    lines = [f"{'status':11} {'epoch':>7} {'last':>7} {'best':>7}  run"]
    for record in found:
        epoch = f"{len(record.epochs)}/{record.spec.get('epochs', '?')}"
        last, best = (number(record.result.get(key), ".2f") for key in ("last", "best"))
        lines.append(f"{record.status:11} {epoch:>7} {last:>7} {best:>7}  {record.folder}")
    return lines


def number(value: Any, form: str) -> str:
    """A number in this format; a dash if it is missing or not finite."""
    return f"{value:{form}}" if isinstance(value, int | float) and math.isfinite(value) else "-"
