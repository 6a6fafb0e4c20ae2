"""`mlrsnet train` and `mlrsnet runs resume` on a terminal."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from mlrsnet_lab.folders import run_folder
from mlrsnet_lab.processes import launched
from mlrsnet_lab.records import Record
from mlrsnet_lab.resume import resume
from mlrsnet_lab.screen.progress import bars, watchers
from mlrsnet_lab.screen.tables import run_lines
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.several import Outcome, train_all
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.watch import Planned, Watcher


def show_train(spec: RunSpec, out: Path | None, settings: Settings) -> None:
    """One training with a progress bar."""
    folder = out or run_folder(spec)
    with _resumable(folder, settings), bars(Console()) as progress:
        watched = replace(settings, watch=watchers(progress, settings, DataSizes()))
        outcome = train_all([Planned(spec, folder, "training")], watched)
    _show(outcome)


def show_resume(folder: Path, settings: Settings) -> None:
    """Continue every unfinished run at or below a folder, with a progress bar each."""
    with _resumable(folder, settings), bars(Console()) as progress:
        outcome = resume(folder, replace(settings, watch=watchers(progress, settings), tell=print))
    _show(outcome)


class DataSizes(Watcher):
    """Prints how much data there is, above the bar."""

    def begin(self, record: Record, step: int, total_steps: int) -> None:
        """Print the size of each part."""
        task = record.data["task"]
        print(", ".join(f"{task[part]:,} {part}" for part in ("train", "val", "test")))


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


def _show(outcome: Outcome) -> None:
    if outcome.records:
        print("\n".join(run_lines(outcome.records)))
    outcome.raise_failures()
