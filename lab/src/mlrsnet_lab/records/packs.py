"""Many runs as one text file, a run per line: fewer files, and git shows which runs a commit changed.

A line is one JSON object: `folder`, the run's folder relative to the pack, and under `record`, `epochs` and `trace` what its
files held; a file that was not there has no key. `sha256` is a digest of the rest, which lines of earlier versions lack. Other
files of a run, such as a schedule, stay where they are.
"""

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from mlrsnet.files.untrusted import LARGEST_LINES, inside, read_text, reason
from mlrsnet.files.writing import write_atomically
from mlrsnet_lab.records import copies
from mlrsnet_lab.records import folder as files
from mlrsnet_lab.records.record import Record, check
from mlrsnet_lab.records.text import dumps, loads

PACK = "runs.jsonl"
PARTS = {"record": files.RECORD, "epochs": files.EPOCHS, "trace": files.TRACE}


def pack(root: Path, found: Iterable[Record]) -> list[Path]:
    """Move ended runs below `root` into packs, one per recipe; other runs go into their parent folder's pack.

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
    for place in places:
        if not inside(path.parent, place):
            raise ValueError(
                f"the run {place!r} of {path} must lie below its folder, got a link that leaves it: remove the link"
            )
    for run in runs:
        assert run.folder is not None
        _write_files(loads(places[run.folder.relative_to(path.parent).as_posix()]), run)
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
    return _index(path, stat.st_mtime_ns, stat.st_size, stat.st_ino)  # a clock can show the same time again


@lru_cache(maxsize=64)
def _index(path: Path, changed: int, size: int, inode: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(_text(path).rstrip("\n").split("\n"), 1):
        place = _place(line)
        found[f"{PACK}:{number}" if place is None or place in found else place] = line
    return found


def _text(path: Path) -> str:
    try:
        return read_text(path, LARGEST_LINES)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({reason(error)}): restore it, or delete it") from None


def _place(line: str) -> str | None:
    """The run's folder; None where the line names none below the pack."""
    try:
        place = loads(line)["folder"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(place, str) or not place.isprintable() or PurePosixPath(place).is_absolute():
        return None
    plain = PurePosixPath(place).as_posix() == place  # no second name for a folder, such as ./a
    return place if place and plain and ".." not in PurePosixPath(place).parts else None


def _parse(line: str, path: Path, place: str) -> dict[str, Any]:
    """The content of a line, checked."""
    if place.startswith(f"{PACK}:"):
        where = f"line {place.removeprefix(f'{PACK}:')} of {path}"
        raise ValueError(f"{where} is damaged, or repeats a run: restore the file, or delete the line")
    data = loads(line)
    if data.get("sha256", (found := _digest(data))) != found:
        raise ValueError(
            f"the run {place} in {path} is damaged (its digest does not match): restore the file, or delete the line"
        )
    check(data.get("record"), f"the run {place} in {path}", data.get("epochs", []), data.get("trace"))
    return dict(data)


def _home(root: Path, run: Record) -> Path:
    """The recipe's folder for its run, which lies in column/row/seed; never above `root`."""
    assert run.folder is not None
    labels = run.data.get("labels")
    in_recipe = isinstance(labels, dict) and {"row", "column"} <= labels.keys()
    home = run.folder.parents[2 if in_recipe else 0]
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
    line = {"folder": place, **there}
    return dumps(line | {"sha256": _digest(line)})


def _digest(line: dict[str, Any]) -> str:
    """Of a run's line, without its digest."""
    content = {key: value for key, value in line.items() if key != "sha256"}
    return hashlib.sha256(dumps(content).encode()).hexdigest()


def _write_files(line: dict[str, Any], run: Record) -> None:
    assert run.folder is not None
    texts = {"epochs": files.epochs_text(run), "trace": files.trace_text(run), "record": files.record_text(run)}
    for part, text in texts.items():  # record.json last: it makes the folder a run
        if part in line:
            write_atomically(run.folder / PARTS[part], text.encode())


def _remove(run: Record, root: Path) -> None:
    """The files that are in the pack now, and folders that this leaves empty."""
    assert run.folder is not None
    for name in (*PARTS.values(), copies.COPY):
        (run.folder / name).unlink(missing_ok=True)
    for folder in (run.folder, *run.folder.parents):
        if folder == root or any(folder.iterdir()):
            return
        folder.rmdir()
