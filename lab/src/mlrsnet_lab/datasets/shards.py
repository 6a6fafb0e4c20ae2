"""Pictures in tar files, as WebDataset writes them: `KEY.jpg` beside `KEY.cls`, the number of its class.

The files are read once for the place of every picture, which is kept in the data folder. From then on a picture is one read at its
place, so that shards are trained on in the same order as a folder with the same pictures, and continue in the middle of an epoch.
"""

import hashlib
import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mlrsnet.files.untrusted import LARGEST_LINES, open_regular, read_text, reason
from mlrsnet.files.writing import write_atomically
from mlrsnet_lab.datasets import split

KEPT = "shards"
"""The folder, in the data folder, of the lists of pictures."""


class Inside(NamedTuple):
    """A picture inside a tar file."""

    archive: str
    key: str
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.archive} ({self.key})"

    def read(self) -> bytes:
        """The picture's bytes."""
        with open(self.archive, "rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


Labelled = list[tuple[Inside, int]]
Parts = dict[str, Sequence[tuple[str | Inside, int]]]


def holds(folder: Path) -> bool:
    """Whether a folder has shards."""
    return any(folder.glob("*.tar"))


def parts(
    folder: Path, names: Sequence[str], endings: tuple[str, ...], classes: Sequence[int] | None, root: Path
) -> tuple[tuple[str, ...], Parts]:
    """The chosen classes, named by their numbers, and all pictures of them in each part, sorted by class and key."""
    found = {name: listed(folder / name, endings, root) for name in names}
    known = {label for _, label in found["train"]}
    for name, pictures in found.items():
        strange = sorted({label for _, label in pictures} - known)
        if strange:
            raise ValueError(
                f"{folder / name} must have classes of train/ only, got class {strange[0]}: remove it, or add it to train/"
            )
    count = max(known) + 1
    chosen = range(count) if classes is None else classes
    split.check_classes(chosen, count)
    new = {number: place for place, number in enumerate(chosen)}
    kept = {name: [(place, new[n]) for place, n in pictures if n in new] for name, pictures in found.items()}
    return tuple(map(str, chosen)), {name: tuple(sorted(these, key=lambda one: one[1])) for name, these in kept.items()}


def listed(folder: Path, endings: tuple[str, ...], root: Path) -> Labelled:
    """All pictures of a folder's shards with their class numbers, sorted by number and key, whatever shard they are in."""
    archives = sorted(str(path) for path in folder.glob("*.tar"))
    kept = root / KEPT / f"{_digest(archives)}.json"
    try:
        rows = json.loads(read_text(kept, LARGEST_LINES))
        return [(Inside(archives[number], *where), label) for number, label, *where in rows]
    except (OSError, ValueError, TypeError, IndexError):  # not there, or damaged: made anew
        found = [
            (label, inside.key, number, inside)
            for number, archive in enumerate(archives)
            for inside, label in _read(archive, endings)
        ]
    found.sort(key=lambda row: row[:3])
    rows = [[number, label, *inside[1:]] for label, _, number, inside in found]
    with suppress(OSError):  # a data folder that cannot be written: read again next time
        write_atomically(kept, json.dumps(rows).encode())
    return [(inside, label) for label, _, _, inside in found]


def _digest(archives: list[str]) -> str:
    """Of the shards' names, sizes and times: changed shards are read again."""
    facts = [(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in archives]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _read(archive: str, endings: tuple[str, ...]) -> Iterator[tuple[Inside, int]]:
    """The pictures of one shard. Raises if one has no class, or a class no picture."""
    pictures: dict[str, Inside] = {}
    labels: dict[str, int] = {}
    length = os.stat(archive).st_size
    try:
        with open_regular(archive) as plain, tarfile.open(fileobj=plain, mode="r:") as file:
            for member in file:
                file.members.clear()  # type: ignore[attr-defined]  # or it would keep them all
                key, ending = _split(member.name)
                if member.isreg() and ending == ".cls":
                    content = file.extractfile(member)
                    labels[key] = _number(content.read(20) if content else b"", f"{archive} ({member.name})")
                elif member.isreg() and ending in endings:
                    if member.offset_data + member.size > length:
                        raise tarfile.ReadError(f"{member.name} claims {member.size:,} bytes")
                    pictures[key] = Inside(archive, member.name, member.offset_data, member.size)
    except (tarfile.TarError, EOFError, OverflowError) as error:
        raise ValueError(
            f"{archive} cannot be read as an uncompressed tar file ({reason(error)}): write it again"
        ) from None
    alone = sorted(pictures.keys() ^ labels.keys())
    if alone or not pictures:
        what = f"{alone[0]!r} has only one of them" if alone else "there is none"
        raise ValueError(
            f"{archive} must have a picture and a class number (KEY.jpg and KEY.cls) for every key, but {what}: write it again"
        )
    yield from ((pictures[key], labels[key]) for key in pictures)


def _split(name: str) -> tuple[str, str]:
    """`train/0001.JPG` -> `train/0001`, `.jpg`."""
    folder, slash, last = name.rpartition("/")
    key, dot, ending = last.partition(".")
    return folder + slash + key, (dot + ending).lower()


def _number(content: bytes, place: str) -> int:
    text = content.decode("ascii", "replace").strip()
    if not text.isdecimal() or len(text) > 9:
        raise ValueError(f"{place} must be the number of a class, from 0, got {text!r}: write it again")
    return int(text)
