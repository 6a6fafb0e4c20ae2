"""Reproduce the paper: one recipe, or all of them with one report."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mlrsnet.card import versions
from mlrsnet.files.writing import write_atomically
from mlrsnet_lab import checks, records
from mlrsnet_lab.campaign import run_recipe
from mlrsnet_lab.recipes import DEMO, RECIPES
from mlrsnet_lab.records import Record
from mlrsnet_lab.report import Report, read_report, save_report
from mlrsnet_lab.settings import DEFAULT, Settings
from mlrsnet_lab.several import Outcome

ALL = "all"
"""Instead of a recipe's name: every recipe but the demo."""

SUMMARY = "all.json"
"""What `all` leaves beside the report: how long everything took, and on what."""


@dataclass
class Reproduction(Outcome):
    """What was run.

    report: what was gathered from the folder, or None if there is nothing to report on.
    page: where the report was written, or None if there is none or matplotlib is missing.
    seconds: how long everything took.
    """

    report: Report | None = None
    page: Path | None = None
    seconds: float = 0.0


def reproduce(
    name: str,
    scale: str,
    out: Path,
    settings: Settings = DEFAULT,
    *,
    seeds: Sequence[int] | None = None,
    only: Sequence[str] = (),
) -> Reproduction:
    """Make a recipe in `out`, and write the report, whose pictures need matplotlib.

    `all` makes every recipe, each in its own folder. It skips recipes whose data or packages are missing, and
    takes one seed at scale `smoke`. Call it again to continue after an interruption.

    Args:
        name: of a recipe, or `all`.
        scale, out, settings, seeds, only: see `run_recipe`.
    """
    names = _check_request(name, only)
    if name == ALL and seeds is None and scale == "smoke":
        seeds = (0,)
    start, done = time.perf_counter(), Reproduction()
    with settings.executor.crew(settings.device, settings.count) as crew:
        for one in names:
            folder = out / one if name == ALL else out
            try:
                done.records += run_recipe(one, scale, folder, settings, seeds=seeds, only=only, crew=crew)
            except (FileNotFoundError, ImportError) as error:  # data or a package that only some recipes need
                if name != ALL:
                    raise
                done.failures.append(f"{one}: {error}")
    done.total = len(done.records) + len(done.failures)
    done.failures[:0] = [_line(record) for record in done.records if record.status == records.FAILED]
    done.report, done.page = _report(out, settings)
    done.seconds = time.perf_counter() - start
    if name == ALL:
        _write_summary(out, scale, done)
    return done


def _check_request(name: str, only: Sequence[str]) -> list[str]:
    """The recipes to make."""
    if name != ALL:
        checks.one_of("recipe", name, RECIPES)
    if only and (name == ALL or RECIPES[name].measure is not None):
        raise ValueError(f"only belongs to a single recipe of trainings, got {name}: leave it out, or name the recipe")
    return [one for one in RECIPES if one != DEMO] if name == ALL else [name]


def _line(record: Record) -> str:
    labels = record.data["labels"]
    return f"{record.folder or labels['column'] + ', ' + labels['row']}: {record.data.get('error')}"


def _report(out: Path, settings: Settings) -> tuple[Report | None, Path | None]:
    """Write the page, unless there is nothing to report on. Without matplotlib the runs still count; say how to get the page."""
    if not out.is_dir() or not (any(records.find(out)) or any(out.rglob(records.STUDY))):
        return None, None
    report = read_report(out)
    try:
        return report, save_report(report, out)[0]
    except ImportError as error:
        settings.tell(f"no report: {error}; then `mlrsnet report {out}` makes it")
        return report, None


def _write_summary(out: Path, scale: str, done: Reproduction) -> None:
    told = {
        "scale": scale,
        "seconds": done.seconds,
        "runs": len(done.records),
        "cpu": f"{os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "versions": versions(),
        "commit": records.commit(),
    }
    write_atomically(out / SUMMARY, records.dumps(told, indent=1).encode())
