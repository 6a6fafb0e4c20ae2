"""A second copy of a run's text files, in one file with digests: what a kill or a flipped bit has spoiled is read from it.

The copy is written first. A file may then be as the copy has it, or still as it was before; anything else is damage.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlrsnet.files.untrusted import LARGEST_LINES, read_bytes
from mlrsnet.files.writing import write_atomically
from mlrsnet_lab import checks
from mlrsnet_lab.records.text import loads

COPY = "record.copy.json"
Files = dict[str, bytes]


@dataclass(frozen=True)
class Copy:
    """The files as they should be, and the digests of those that they replaced."""

    files: Files
    before: dict[str, str]

    def odd(self, found: Files) -> list[str]:
        """The names of files that are neither. They are written in order: once the last one is new, so are the others."""
        last = list(self.files)[-1]
        is_new = found.get(last) == self.files[last] and not self._is_older(last, found)
        return [
            name
            for name, content in self.files.items()
            if found.get(name) != content and (is_new or not self._is_older(name, found))
        ]

    def _is_older(self, name: str, found: Files) -> bool:
        return _digest(found[name]) == self.before.get(name) if name in found else name not in self.before


def write(folder: Path, files: Files) -> None:
    """Keep a copy of the files that are about to be written."""
    content: dict[str, Any] = {
        "about": "a copy of the files beside it, for when one is damaged; delete it after you have changed one by hand",
        "before": {name: _digest(content) for name, content in read_files(folder, files).items()},
        "files": {name: content.decode() for name, content in files.items()},
    }
    text = json.dumps(content | {"sha256": _digest(json.dumps(content).encode())})
    write_atomically(folder / COPY, text.encode())


def whole(folder: Path, found: Files) -> Files:
    """The files of a run as they were last written, given what is in its folder now. Damage is named in one warning."""
    if not (folder / COPY).is_file():
        return found
    copy = _read(folder)
    if copy is None:
        checks.warn(
            f"{folder / COPY} is damaged; the files beside it are read as they are: the next write makes it again"
        )
        return found
    if odd := copy.odd(found):
        names = ", ".join(str(folder / name) for name in odd)
        checks.warn(
            f"{names} changed after being saved; going on with the copy in {COPY}: if you changed it yourself, delete the copy"
        )
    return copy.files


def restore(folder: Path, names: tuple[str, ...]) -> None:
    """Write files that differ from their copy again; what was changed stays as NAME.changed. Only when nobody writes the run."""
    copy = _read(folder) if (folder / COPY).is_file() else None
    found = read_files(folder, names)
    if copy is None or found == copy.files:
        return
    for name in copy.odd(found):
        if name in found:
            write_atomically(folder / f"{name}.changed", found[name])
    for name, content in copy.files.items():
        if found.get(name) != content:
            write_atomically(folder / name, content)


def read_files(folder: Path, names: Any) -> Files:
    """The bytes of those files that are there."""
    return {name: read_bytes(folder / name, LARGEST_LINES) for name in names if (folder / name).is_file()}


def _read(folder: Path) -> Copy | None:
    """The copy; None if it is damaged."""
    try:
        content = loads(read_bytes(folder / COPY, LARGEST_LINES))
        digest = content.pop("sha256")
        if digest != _digest(json.dumps(content).encode()):
            return None
        return Copy({name: text.encode() for name, text in content["files"].items()}, content["before"])
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError, OSError):
        return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
