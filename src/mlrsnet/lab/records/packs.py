"""Many runs as one text file, a run per line: fewer files, and git shows which runs a commit changed.

A line is one JSON object: `folder`, the run's folder relative to the pack, and under `record`, `epochs` and `trace` what its
files held; a file that was not there has no key. Other files of a run, such as a schedule, stay where they are.
"""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from mlrsnet._files.storage import write_atomically
from mlrsnet.lab.records import folder as files
from mlrsnet.lab.records.record import Record, check
from mlrsnet.lab.records.text import dumps

PACK = "runs.jsonl"
PARTS = {"record": files.RECORD, "epochs": files.EPOCHS, "trace": files.TRACE}


def pack(root: Path, found: Iterable[Record]) -> list[Path]:
    """Move ended runs below `root` into packs, one per column of a recipe; other runs go into their parent folder's pack.

    The packs are written before any file is removed, so nothing is lost if this is interrupted.
    """
    homes: dict[Path, list[Record]] = {}
    for run in found:
        if run.ended and run.folder is not None and (run.folder / files.RECORD).is_file():
            homes.setdefault(_home(root, run), []).append(run)
    for home, runs in homes.items():
        _write(home / PACK, runs)
    for run in (run for runs in homes.values() for run in runs):
        _remove(run, root)
    return [home / PACK for home in sorted(homes)]


def unpack(path: Path) -> list[Path]:
    """Write the runs of a pack into folders again and remove the pack; returns the folders."""
    places = index(path)
    runs = [read(path, place) for place in places]  # a damaged line stops this before anything is written
    for run in runs:
        assert run.folder is not None
        _write_files(json.loads(places[run.folder.relative_to(path.parent).as_posix()]), run)
    path.unlink()
    return [run.folder for run in runs if run.folder is not None]


def read(path: Path, place: str) -> Record:
    """One run of a pack; one ValueError if its line is damaged."""
    line = index(path)[place]
    data = _parse(line, path, place)
    return Record(data["record"], data.get("epochs", []), data.get("trace", {}), path.parent / place)


def index(path: Path) -> dict[str, str]:
    """The lines of a pack by the run's folder; a damaged one by the pack's name and its number, as `runs.jsonl:3`."""
    stat = path.stat()
    return _index(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=64)
def _index(path: Path, changed: int, size: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_text().rstrip("\n").split("\n"), 1):
        place = _place(line)
        found[f"{PACK}:{number}" if place is None or place in found else place] = line
    return found


def _place(line: str) -> str | None:
    """The run's folder; None where the line names none below the pack."""
    try:
        place = json.loads(line)["folder"]
        inside = isinstance(place, str) and place and not PurePosixPath(place).is_absolute()
        return place if inside and ".." not in PurePosixPath(place).parts else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _parse(line: str, path: Path, place: str) -> dict[str, Any]:
    """The content of a line, checked."""
    if place.startswith(f"{PACK}:"):
        where = f"line {place.removeprefix(f'{PACK}:')} of {path}"
        raise ValueError(f"{where} is damaged, or repeats a run: restore the file, or delete the line")
    data = json.loads(line)
    check(data.get("record"), f"the run {place} in {path}")
    return dict(data)


def _home(root: Path, run: Record) -> Path:
    """The column's folder for a recipe's run, which lies in column/row/seed; never above `root`."""
    assert run.folder is not None
    labels = run.data.get("labels")
    in_recipe = isinstance(labels, dict) and {"row", "column"} <= labels.keys()
    home = run.folder.parents[1 if in_recipe else 0]
    return home if home.is_relative_to(root) else root


def _write(path: Path, runs: Sequence[Record]) -> None:
    """Add runs to a pack; one that is there already is replaced."""
    lines = dict(index(path)) if path.is_file() else {}
    for run in runs:
        assert run.folder is not None
        place = run.folder.relative_to(path.parent).as_posix()
        lines[place] = _line(place, run)
    write_atomically(path, "".join(f"{lines[place]}\n" for place in sorted(lines)).encode())


def _line(place: str, run: Record) -> str:
    assert run.folder is not None
    parts = {"record": run.data, "epochs": run.epochs, "trace": run.trace}
    there = {key: parts[key] for key, name in PARTS.items() if (run.folder / name).is_file()}
    return dumps({"folder": place, **there})


def _write_files(line: dict[str, Any], run: Record) -> None:
    assert run.folder is not None
    texts = {"epochs": files.epochs_text(run), "trace": files.trace_text(run), "record": files.record_text(run)}
    for part, text in texts.items():  # record.json last: it makes the folder a run
        if part in line:
            write_atomically(run.folder / PARTS[part], text.encode())


def _remove(run: Record, root: Path) -> None:
    """The files that are in the pack now, and folders that this leaves empty."""
    assert run.folder is not None
    for name in PARTS.values():
        (run.folder / name).unlink(missing_ok=True)
    for folder in (run.folder, *run.folder.parents):
        if folder == root or any(folder.iterdir()):
            return
        folder.rmdir()
