"""Reproduce the paper: recipes with one report, all of them, or what is worth most next."""

import os
import signal
import threading
import time
from _thread import interrupt_main
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import torch

from mlrsnet.card import versions
from mlrsnet.files.writing import write_atomically
from mlrsnet_lab import checks, records
from mlrsnet_lab.campaign import Part, begin, plan
from mlrsnet_lab.executors import Crew
from mlrsnet_lab.recipes import DEMO, RECIPES, SCALES
from mlrsnet_lab.records import Record
from mlrsnet_lab.report import Report, read_report, save_report
from mlrsnet_lab.settings import DEFAULT, Settings
from mlrsnet_lab.several import Outcome

ALL = "all"
"""Instead of a recipe's name: every recipe that has the scale, but the demo."""

NEXT = "next"
"""Instead of a recipe's name: what is worth most next, for some seconds."""

ORDER: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("attribution", ()),
    ("table3", ("3-layer LSTM",)),
    ("table1", ("CIFAR-10",)),
    ("ablation", ()),
    ("phases", ()),
    ("adam", ()),
    ("lstm-or-mlp", ()),
    ("table6", ()),
    ("epochs", ("400 epochs",)),
    ("wrn", ()),
    ("networks", ("NASNet",)),
    ("meta-tasks", ()),
)
"""What `next` makes first, recipes and their columns: what would change most of what the documents say of the paper."""

ASK_EVERY = 0.5
"""Seconds."""

SUMMARY = "all.json"
"""What `all` leaves beside the report: how long everything took, and on what."""


@dataclass
class Reproduction(Outcome):
    """What was run.

    report: what was gathered from the folder, or None if there is nothing to report on.
    page: where the report was written, or None if there is none or matplotlib is missing.
    seconds: how long everything took.
    stopped: whether time was up before everything was made.
    """

    report: Report | None = None
    page: Path | None = None
    seconds: float = 0.0
    stopped: bool = False


def reproduce(
    names: str | Sequence[str],
    scale: str,
    out: Path,
    settings: Settings = DEFAULT,
    *,
    seeds: Sequence[int] | None = None,
    only: Sequence[str] = (),
    seconds: float | None = None,
) -> Reproduction:
    """Make a recipe in `out`, and write the report, whose pictures need matplotlib.

    Several recipes, or `all`, each have a folder of their own below `out`, and share equal runs. Recipes whose data or packages
    are missing are skipped. `all` takes one seed at scale `smoke`. Call it again to continue after an interruption.

    Args:
        names: of recipes, or `all`; or `next`: all of them, in the order of `ORDER`, the first seed of everything first.
        scale, out, settings, seeds, only: see `run_recipe`.
        seconds: stop politely after this time; what is unfinished goes on at the next call.
    """
    chosen = [names] if isinstance(names, str) else list(names)
    _check_request(chosen, scale, only, seconds)
    if chosen == [ALL] and seeds is None and scale == "smoke":
        seeds = (0,)
    start, done = time.perf_counter(), Reproduction()
    with settings.executor.crew(settings.device, settings.count) as crew, _alarm(seconds) as alarm:
        campaign = begin(_parts(chosen, scale, out, settings, seeds, only, crew, done), settings, crew)
        try:
            campaign.make(settings, crew, alarm.is_set)
        except KeyboardInterrupt:
            if not alarm.is_set():
                raise
    done.records, done.stopped = campaign.records, campaign.unfinished
    done.total = len(done.records) + len(done.failures)
    done.failures[:0] = [_line(record) for record in done.records if record.status == records.FAILED]
    done.report, done.page = _report(out, settings)
    done.seconds = time.perf_counter() - start
    if chosen == [ALL] and not done.stopped:
        _write_summary(out, scale, done)
    return done


def _check_request(names: list[str], scale: str, only: Sequence[str], seconds: float | None) -> None:
    checks.one_of("scale", scale, SCALES)
    whole = len(names) == 1 and names[0] in (ALL, NEXT)
    for name in names:
        if not whole:
            checks.one_of("recipe", name, RECIPES)
    if only and (whole or len(names) > 1 or RECIPES[names[0]].measure is not None):
        asked = ", ".join(names)
        raise ValueError(f"only belongs to a single recipe of trainings, got {asked}: leave it out, or name the recipe")
    if seconds is not None:
        checks.positive("seconds", seconds)


def _parts(
    names: list[str],
    scale: str,
    out: Path,
    settings: Settings,
    seeds: Sequence[int] | None,
    only: Sequence[str],
    crew: Crew | None,
    done: Reproduction,
) -> list[Part]:
    """What there is to make; where several recipes were asked for, those without their data are among the failures."""
    if len(names) == 1 and names[0] in RECIPES:
        return [plan(names[0], scale, out, settings, seeds=seeds, only=only, crew=crew)]
    having = [name for name in RECIPES if name != DEMO and scale in RECIPES[name].scales]
    wanted: list[tuple[str, tuple[str, ...]]] = [(name, ()) for name in (having if names == [ALL] else names)]
    if names == [NEXT]:
        first = [(name, _columns(name, scale, columns)) for name, columns in ORDER if name in having]
        wanted = [*first, *((name, ()) for name in having if RECIPES[name].measure is None)]
    without = [name for name in RECIPES if name not in (DEMO, *having)] if names == [ALL] else []
    if without:
        settings.tell(f"without scale {scale}, so left out: {', '.join(without)}")
    found: list[Part] = []
    failures: dict[str, str] = {}
    for name, columns in wanted:
        try:
            found.append(plan(name, scale, out / name, settings, seeds=seeds, only=columns, crew=crew))
        except (FileNotFoundError, ImportError) as error:  # data or a package that only some recipes need
            failures[name] = f"{name}: {error}"
    if names == [NEXT]:  # everything that there is is asked for, whatever is at hand
        settings.tell("".join(f"left out: {why}\n" for why in failures.values()).rstrip())
    else:
        done.failures += failures.values()
    return list(_seed_by_seed(found, seeds)) if names == [NEXT] else found


def _columns(name: str, scale: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """Those that the scale has; empty, which means all of them, if other columns stand in for them."""
    there = {cell.column for cell in RECIPES[name].cells(scale)}
    return tuple(column for column in wanted if column in there)


def _seed_by_seed(parts: Sequence[Part], seeds: Sequence[int] | None) -> Iterator[Part]:
    """The first seed of every part, then the second one, as far as their cells have it."""
    for place in range(max((len(seeds or part.recipe.seeds) for part in parts), default=0)):
        for part in parts:
            now = (seeds or part.recipe.seeds)[place : place + 1]
            yield replace(part, jobs=[job for job in part.jobs if job.seed in now])


@contextmanager
def _alarm(seconds: float | None) -> Iterator[threading.Event]:
    """After some seconds set the event, and ask to stop as SIGTERM does, which trainings obey at the end of a step.

    It asks until it is heard: between trainings nobody listens, and an exception of a signal can get lost there.
    """
    rang, over = threading.Event(), threading.Event()
    if seconds is None or threading.current_thread() is not threading.main_thread():  # others hear no signals
        yield rang
        return

    def ring() -> None:
        if over.wait(seconds):
            return
        rang.set()
        while not over.is_set():
            interrupt_main(signal.SIGTERM)
            over.wait(ASK_EVERY)

    def heard(number: int, frame: FrameType | None) -> None:
        if not rang.is_set():  # somebody else's signal
            raise KeyboardInterrupt

    before, thread = signal.signal(signal.SIGTERM, heard), threading.Thread(target=ring, daemon=True)
    thread.start()
    try:
        yield rang
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGTERM, before)


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
