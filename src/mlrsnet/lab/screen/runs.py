"""`mlrsnet runs` on a terminal."""

import shutil
import textwrap
from pathlib import Path
from typing import Any

from mlrsnet.lab import records
from mlrsnet.lab.records import Record
from mlrsnet.lab.report.numbers import count_text
from mlrsnet.lab.screen.tables import describe_run, number, run_lines
from mlrsnet.lab.screen.train import train_all
from mlrsnet.lab.spec import RunSpec


def show_runs(folder: Path) -> None:
    """Every run below a folder, those that cannot be read too."""
    found, unreadable = read_below(folder)
    if found:
        print("\n".join(run_lines(found)))
    for message in unreadable:
        print(f"unreadable: {message}")
    if not found and not unreadable:
        print(f"There are no runs below {folder}: `mlrsnet train` and `mlrsnet reproduce` make some.")


def show_run(folder: Path) -> None:
    """One run in words."""
    record = records.read(folder)
    for name, value in _in_words(record).items():
        if value:
            print(_wrapped(f"{name:12} {value}"))
    if record.epochs:
        print(f"\n{'epoch':>5} {'LR':>9} {'train loss':>11} {'val loss':>9} {'test loss':>9} {'test metric':>11}")
    for line in record.epochs[-5:]:
        losses = [number(line.get(f"{part}_loss"), ".4f") for part in ("train", "val", "test")]
        rate, metric = number(line.get("lr"), ".3g"), number(line.get("test_metric"), ".2f")
        print(f"{line.get('epoch', '?'):>5} {rate:>9} {losses[0]:>11} {losses[1]:>9} {losses[2]:>9} {metric:>11}")
    print(f"\neverything: {records.file_of(folder)}")


def pack_runs(folder: Path) -> None:
    """Put every ended run below a folder into packs; runs that are damaged or have not ended stay as they are."""
    found, unreadable = read_below(folder)
    if unreadable:
        raise ValueError(f"nothing was packed: {unreadable[0]}")
    for path in (made := records.pack(folder, found)):
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


def resume_runs(folder: Path, device: str, root: Path | None, tensorboard: bool) -> None:
    """Go on with every unfinished run at or below a folder; what cannot be read is said and left as it is."""
    if records.holds(folder):
        found = [records.read(folder)]
        unreadable: list[str] = []
    else:
        found, unreadable = read_below(folder)
    if not found and not unreadable:
        raise ValueError(f"there are no runs below {folder}: pass a run's folder, or one above runs")
    for message in unreadable:
        print(f"unreadable: {message}")
    todo = [record for record in found if not record.ended]
    if not todo:
        print(f"nothing to do: {count_text(len(found), 'run')} below {folder}, none unfinished")
        return
    jobs = []
    for record in todo:
        try:
            jobs.append((RunSpec.from_dict(record.spec), record.folder or folder, describe_run(record)))
        except ValueError as error:
            print(f"left as it is: {record.folder}: {error}")
    if jobs:
        train_all(jobs, folder, device, root, tensorboard)


def read_below(folder: Path) -> tuple[list[Record], list[str]]:
    """The runs below a folder, and what is to be said of those that cannot be read."""
    found, unreadable = [], []
    for path in records.find(folder):
        try:
            found.append(records.read(path))
        except ValueError as error:
            unreadable.append(str(error))
    return found, unreadable


def _in_words(record: Record) -> dict[str, str]:
    data, spec, result = record.data, record.spec, record.result
    named = ("task", "model", "optimizer", "schedule")
    options = {name: spec.get(f"{name}_options") for name in named}
    rest = {
        key: value for key, value in spec.items() if key.removesuffix("_options") not in named and value is not None
    }
    metric, timing = data.get("metric") or {}, data.get("timing") or {}
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
        "time": f"{number(timing.get('seconds'), '.3g')} s, an epoch {number(timing.get('seconds_per_epoch'), '.3g')} s",
        "device": str(data.get("device") or ""),
        "versions": _pairs(data.get("versions") or {}),
    }


def _wrapped(line: str) -> str:
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, subsequent_indent=13 * " ", break_long_words=False, break_on_hyphens=False)


def _pairs(values: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items()) if isinstance(values, dict) else str(values)
