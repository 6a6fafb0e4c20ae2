"""Runs below a folder, in folders of their own or in packs."""

import os
from collections.abc import Iterator
from pathlib import Path

from mlrsnet_lab.records import folder as files
from mlrsnet_lab.records import packs
from mlrsnet_lab.records.record import Record


def find(root: Path) -> Iterator[Path]:
    """Folders of runs at or below `root`, in order of their names; those of packed runs need not exist.

    A damaged line of a pack is found too, as `runs.jsonl:3`: `read` says what is wrong with it.
    """
    found = set(_above(root))
    if not root.is_dir() and not found:
        raise ValueError(f"there is no folder {root}: pass one that holds runs")
    for place, _, names in os.walk(root):
        if files.RECORD in names:
            found.add(Path(place))
        if packs.PACK in names:
            found.update(Path(place) / run for run in packs.index(Path(place) / packs.PACK))
    return iter(sorted(found))


def read(folder: Path) -> Record:
    """The run of a folder, from its files or from a pack above; one ValueError if there is none."""
    if not (folder / files.RECORD).is_file() and (pack := _pack_of(folder)):
        return packs.read(*pack)
    return files.read(folder)


def holds(folder: Path) -> bool:
    """Whether there is a run of this folder, in files or in a pack."""
    return (folder / files.RECORD).is_file() or _pack_of(folder) is not None


def has_ended(folder: Path) -> bool:
    """Whether there is a run of this folder that can be read and has nothing left to train."""
    try:
        return holds(folder) and read(folder).ended
    except ValueError:
        return False


def file_of(folder: Path) -> Path:
    """The file that holds the record of this folder's run: its record.json, or a pack."""
    pack = None if (folder / files.RECORD).is_file() else _pack_of(folder)
    return folder / files.RECORD if pack is None else pack[0]


def runs(root: Path) -> Iterator[Record]:
    """Every run at or below `root` that can be read."""
    for folder in find(root):
        try:
            yield read(folder)
        except ValueError:
            continue


def _pack_of(folder: Path) -> tuple[Path, str] | None:
    """The pack that holds a run of this folder, and the run's place in it."""
    for above in folder.parents:
        pack = above / packs.PACK
        if pack.is_file():
            place = folder.relative_to(above).as_posix()
            return (pack, place) if place in packs.index(pack) else None
    return None


def _above(root: Path) -> Iterator[Path]:
    """Packed runs at or below `root` whose pack lies above it."""
    for above in root.parents:
        pack = above / packs.PACK
        if pack.is_file():
            yield from (above / place for place in packs.index(pack) if (above / place).is_relative_to(root))
            return
