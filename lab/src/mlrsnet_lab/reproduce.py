"""Reproduce the paper: one recipe, one study, or all of them with one report."""

import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from mlrsnet import __version__
from mlrsnet.card import versions
from mlrsnet.files.writing import write_atomically
from mlrsnet_lab import checks, records
from mlrsnet_lab.campaign import earlier, run_recipe
from mlrsnet_lab.recipes import RECIPES, SCALES, STUDIES
from mlrsnet_lab.records import STUDY, Record
from mlrsnet_lab.report import Report, read_report, save_report
from mlrsnet_lab.settings import DEFAULT, Settings
from mlrsnet_lab.several import Outcome

ALL = "all"
"""Instead of a recipe's name: every recipe and study."""

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
    """Train a recipe, or compute a study, into `out`, and write the report, whose pictures need matplotlib.

    `all` does both for every recipe and study, each in its own folder. It skips recipes whose data or packages are missing, and
    takes one seed at scale `smoke`. Call it again to continue after an interruption.

    Args:
        name: of a recipe or a study, or `all`.
        scale, out, settings, seeds, only: see `run_recipe`.
    """
    names = _check_request(name, only)
    if name == ALL and seeds is None and scale == "smoke":
        seeds = (0,)
    start, done = time.perf_counter(), Reproduction()
    crews = settings.executor.crew(settings.device, settings.count)
    with nullcontext() if name in STUDIES else crews as crew:  # a study is computed here
        for one in names:
            folder = out / one if name == ALL else out
            if one in STUDIES:
                run_study(one, scale, folder, seed=seeds[0] if seeds else 0)
                continue
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


def run_study(name: str, scale: str, out: Path, *, seed: int = 0) -> Path:
    """Compute a study below `out` and return its file. It takes up to a minute on the CPU, and is computed every time."""
    chosen = STUDIES[checks.one_of("study", name, STUDIES)]
    checks.one_of("scale", scale, SCALES)
    earlier(out, STUDY, name, scale)
    start = time.perf_counter()
    assert chosen.measure is not None
    grids, figures = chosen.measure(scale, checks.whole_number("seed", seed, 0))
    made = {
        "versions": {"mlrsnet": __version__, **versions()},
        "device": "cpu",
        "commit": records.commit(),
        "seconds": time.perf_counter() - start,
    }
    found = replace(chosen.sheet(scale, [seed]), grids=grids, figures=figures, made=made)
    write_atomically(out / STUDY, records.dumps(found.to_dict(), indent=1).encode())
    return out / STUDY


def _check_request(name: str, only: Sequence[str]) -> list[str]:
    """The recipes and studies to run."""
    every = [*RECIPES, *STUDIES]
    if only and (name == ALL or name in STUDIES):
        raise ValueError(f"only belongs to a single recipe of trainings, got {name}: leave it out, or name the recipe")
    return every if name == ALL else [checks.one_of("recipe", name, every)]


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
