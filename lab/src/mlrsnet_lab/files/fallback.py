"""The newest good one of a file and the one before it."""

import io
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from mlrsnet.files.untrusted import reason
from mlrsnet.files.writing import UNFINISHED, write_atomically
from mlrsnet_lab import checks
from mlrsnet_lab.files import seals

T = TypeVar("T")


class DamagedError(ValueError):
    """Neither a file nor the one before it can be read; `reasons` says why, for each that is there."""

    def __init__(self, reasons: dict[Path, str]) -> None:
        super().__init__(", ".join(f"{path} ({reason})" for path, reason in reasons.items()))
        self.reasons = reasons

    def told(self, what: str, then: str) -> ValueError:
        """One line: which files are not what they should be, why, and what to do with `{it}`."""
        first, *others = self.reasons
        names = f"neither {first} nor {others[0]} is" if others else f"{first} is not"
        return ValueError(
            f"{names} {what} ({'; '.join(dict.fromkeys(self.reasons.values()))}): {then.format(it='both' if others else 'it')}"
        )


def previous(path: Path) -> Path:
    """Where the file stands that `path` replaced: checkpoint.pt -> checkpoint.previous.pt."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def write(path: Path, file: io.BytesIO) -> None:
    """Write a zip file atomically, with a seal. The one that it replaces stays as `previous(path)`, unless it is damaged."""
    write_atomically(path, seals.sealed(file), before=partial(_keep, path))


def exists(path: Path) -> bool:
    """Whether the file or the one before it is there."""
    return path.is_file() or previous(path).is_file()


def read_newest(path: Path, read: Callable[[Path], T]) -> T:
    """What `read` makes of a file, or of the one before it if it is damaged or missing; says so in one warning."""
    reasons: dict[Path, str] = {}
    for place in (path, previous(path)):
        if not place.is_file():
            continue
        try:
            seals.check(place)
            found = read(place)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # damaged bytes can fail in any way
            reasons[place] = (
                str(error) if isinstance(error, seals.BrokenSealError) else f"{type(error).__name__}: {reason(error)}"
            )
            continue
        if reasons:
            checks.warn(f"{DamagedError(reasons)} is damaged; going on from the one before, {place}")
        return found
    if not reasons:
        raise FileNotFoundError(f"there is no file {path}")
    raise DamagedError(reasons)


def remove(path: Path) -> None:
    """Remove a file and the one before it; the older one first, so that a kill leaves the newest."""
    for place in (previous(path), path):
        place.unlink(missing_ok=True)


def _keep(path: Path) -> None:
    """Give the file a second name. Where there are no hard links, it loses the first one for a moment."""
    if not seals.is_intact(path):
        return
    if previous(path).exists() and os.path.samefile(path, previous(path)):
        return  # a kill came after this and before the rename; renaming one name of a file to another does nothing
    second = path.with_name(f".{path.name}.old{UNFINISHED}")
    second.unlink(missing_ok=True)
    try:
        os.link(path, second)
    except OSError:
        os.replace(path, previous(path))
    else:
        os.replace(second, previous(path))
