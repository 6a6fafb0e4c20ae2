"""`mlrsnet runs`: what there is, one run in words, going on, packing."""

import argparse
import shutil
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlrsnet.cli.parser import Parser, add_command
from mlrsnet.files.untrusted import printable
from mlrsnet_lab import records
from mlrsnet_lab.commands.options import add_data, add_device, add_tensorboard, settings
from mlrsnet_lab.commands.progress import number, run_lines, show_outcome
from mlrsnet_lab.records import Record
from mlrsnet_lab.report.numbers import count_text
from mlrsnet_lab.several import read_below, resume


def add(runs: Parser) -> None:
    """Add its actions."""
    actions = runs.add_subparsers(title="actions", required=True, metavar="ACTION")
    found = add_command(
        actions, "list", "every run below a folder", "With test accuracy (%) or perplexity of the last and best epoch."
    )
    found.add_argument("folder", nargs="?", type=Path, default=Path("."), help="default: the current one")
    found.set_defaults(run=lambda arguments: show_runs(arguments.folder))
    show = add_command(actions, "show", "one run: what was trained, its result, its last epochs")
    show.add_argument("folder", type=Path, help="the run's, as `mlrsnet runs list` shows it")
    show.set_defaults(run=lambda arguments: show_run(arguments.folder))
    resume = add_command(actions, "resume", "continue an unfinished run, or all below a folder")
    resume.add_argument("folder", type=Path, help="the run's, or one above several")
    add_device(resume)
    add_data(resume)
    add_tensorboard(resume)
    resume.set_defaults(run=_resume)
    pack = add_command(
        actions, "pack", "ended runs as one file per recipe", "list, show and report read packs as they read folders."
    )
    pack.add_argument("folder", type=Path, help="runs are found at all depths below it")
    pack.set_defaults(run=lambda arguments: pack_runs(arguments.folder))
    unpack = add_command(actions, "unpack", "the reverse of pack: a folder for each run")
    unpack.add_argument("folder", type=Path, help="packs are found at all depths below it")
    unpack.set_defaults(run=lambda arguments: unpack_runs(arguments.folder))


def _resume(arguments: argparse.Namespace) -> None:
    """Continue every unfinished run at or below a folder, with a progress bar each."""
    folder = arguments.folder
    show_outcome(folder, settings(arguments), lambda watched: resume(folder, replace(watched, tell=print)))


def show_runs(folder: Path) -> None:
    """One line per run below a folder, also for those that cannot be read."""
    runs = read_below(folder)
    if runs.found:
        print("\n".join(map(printable, run_lines(runs.found))))
    for message in runs.unreadable:
        print(printable(f"unreadable: {message}"))
    if not runs.found and not runs.unreadable:
        print(f"There are no runs below {folder}: `mlrsnet train` and `mlrsnet reproduce` make some.")


def show_run(folder: Path) -> None:
    """One run: what was trained, its result, its last epochs."""
    record = records.read(folder)
    for name, value in _in_words(record).items():
        if value:
            print(_wrapped(printable(f"{name:12} {value}")))
    if record.epochs:
        print(f"\n{'epoch':>5} {'LR':>9} {'train loss':>11} {'val loss':>9} {'test loss':>9} {'test metric':>11}")
    for line in (line for line in record.epochs[-5:] if isinstance(line, dict)):
        losses = [number(line.get(f"{part}_loss"), ".4f") for part in ("train", "val", "test")]
        rate, metric = number(line.get("lr"), ".3g"), number(line.get("test_metric"), ".2f")
        epoch = printable(str(line.get("epoch", "?")))
        print(f"{epoch:>5} {rate:>9} {losses[0]:>11} {losses[1]:>9} {losses[2]:>9} {metric:>11}")
    print(f"\neverything: {records.file_of(folder)}")


def pack_runs(folder: Path) -> None:
    """Put every ended run below a folder into packs; others stay as they are."""
    runs = read_below(folder)
    if runs.unreadable:
        raise ValueError(f"nothing was packed: {runs.unreadable[0]}")
    for path in (made := records.pack(folder, runs.found)):
        print(f"pack: {path}")
    if not made:
        print(f"nothing to pack: there is no ended run in a folder of its own below {folder}")


def unpack_runs(folder: Path) -> None:
    """Give every packed run below a folder its own folder again."""
    found = sorted(folder.rglob(records.PACK))
    if not found:
        raise ValueError(
            f"there is no {records.PACK} below {folder}: pass a folder that `mlrsnet runs pack` has written"
        )
    for path in found:
        print(f"{count_text(len(records.unpack(path)), 'run')} from {path}")


def _in_words(record: Record) -> dict[str, str]:
    data, spec, result = record.data, record.spec, record.result
    named = ("task", "model", "optimizer", "schedule")
    options = {name: spec.get(f"{name}_options") for name in named}
    rest = {
        key: value for key, value in spec.items() if key.removesuffix("_options") not in named and value is not None
    }
    metric, timing = record.entry("metric"), record.entry("timing")
    unit = f" {metric['unit']}" if metric.get("unit") else ""
    return {
        "status": record.status,
        "error": str(data.get("error") or ""),
        "belongs to": _pairs(data.get("labels") or {}),
        **{name: f"{spec.get(name)}{f' ({_pairs(options[name])})' if options[name] else ''}" for name in named},
        "settings": _pairs(rest),
        "progress": f"{len(record.epochs)} of {spec.get('epochs', '?')} epochs",
        "result": (
            f"test {metric.get('name', 'metric')} {number(result.get('last'), '.2f')}{unit} in the last epoch; "
            f"{number(result.get('best'), '.2f')}{unit} at best, in epoch {result.get('best_epoch')}"
            if result
            else ""
        ),
        "time": f"{number(timing.get('seconds'), '.3g')} s, {number(timing.get('seconds_per_epoch'), '.3g')} s per epoch",
        "device": str(data.get("device") or ""),
        "versions": _pairs(data.get("versions") or {}),
    }


def _wrapped(line: str) -> str:
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, subsequent_indent=13 * " ", break_long_words=False, break_on_hyphens=False)


def _pairs(values: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items()) if isinstance(values, dict) else str(values)
