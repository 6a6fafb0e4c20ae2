"""Arrays from strangers: what an archive or an array claims to hold is compared with what it has before memory is taken.

Arrays of Python objects, which are pickles, are refused. As in `untrusted`, errors state the rule and what was found.
"""

import gzip
import io
import math
import os
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from mlrsnet.files.checkpoints import open_zip
from mlrsnet.files.untrusted import open_regular

Array = np.ndarray[Any, Any]

LARGEST_MEMBER = 256 * 2**20
"""Bytes of a text in an archive, and of a whole unpacked .tar.gz."""

MOST_COMPRESSION = 1032
"""Deflate cannot do better: a member that claims more does not hold it."""

KINDS = "biufcSU"
"""Of numpy's types: numbers and text, no objects."""


def memory() -> int:
    """The bytes of memory that this process can have at most, as far as the system tells."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows
        return 2**63
    try:
        return min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no group, or "max"
        return whole


def load_arrays(path: str | os.PathLike[str], names: Iterable[str] | None = None) -> dict[str, Array]:
    """The arrays of an .npz file; only those of these names that it has, unless None. Others cost nothing."""
    with open_regular(path) as file, open_zip(file) as archive:
        members = _members(archive)
        wanted = members if names is None else {name: members[name] for name in names if name in members}
        need = sum(_claimed(archive, member) for member in wanted.values())
        if need > memory():
            raise ValueError(f"its arrays must fit into memory, {memory():,} bytes, got {need:,} bytes of them")
        return {name: _read(archive, member) for name, member in wanted.items()}


def array_names(path: str | os.PathLike[str]) -> list[str]:
    """The names of the arrays in an .npz file."""
    with open_regular(path) as file, open_zip(file) as archive:
        return sorted(_members(archive))


def load_array(path: str | os.PathLike[str]) -> Array:
    """The array of an .npy file."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        _check_header(file, size)
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)


def read_member(path: str | os.PathLike[str], name: str | None = None) -> bytes:
    """One file of a zip archive, the first if no name is given. Nothing is written to disk, so no name can lead anywhere."""
    with open_regular(path) as file, open_zip(file) as archive:
        member = archive.infolist()[0] if name is None else archive.getinfo(name)
        _check_length(member.filename, member.file_size)
        return archive.read(member)


def read_tar_members(path: str | os.PathLike[str], names: Iterable[str]) -> list[bytes]:
    """Files of a .tar.gz archive. Nothing is written to disk, so no name or link can lead anywhere."""
    with open_regular(path) as file, gzip.GzipFile(fileobj=file) as packed:
        content = packed.read(LARGEST_MEMBER + 1)
    _check_length("the unpacked archive", len(content))
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        found = [archive.extractfile(name) for name in names]
        return [b"" if one is None else one.read() for one in found]


def _check_length(name: str, length: int) -> None:
    if length > LARGEST_MEMBER:
        raise ValueError(f"{name} must have at most {LARGEST_MEMBER:,} bytes, got {length:,} or more")


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    return {item.filename.removesuffix(".npy"): item for item in archive.infolist() if item.filename.endswith(".npy")}


def _claimed(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """The bytes that a member will take, after a look at its header."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{member.filename} must be stored or deflated, got compression {member.compress_type}")
    if member.file_size > MOST_COMPRESSION * member.compress_size:
        raise ValueError(
            f"{member.filename} claims {member.file_size:,} bytes, but {member.compress_size:,} cannot hold so many"
        )
    with archive.open(member) as file:
        _check_header(file, member.file_size)
    return member.file_size


def _check_header(file: Any, size: int) -> None:
    """Compare the header of an .npy file with the number of its bytes."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array must have the format version 1.0 or 2.0, got {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.kind not in KINDS:
        raise ValueError(f"arrays must hold numbers or text, got {dtype}, which would need allow_pickle")
    claimed = file.tell() + math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or claimed != size:
        raise ValueError(f"an array of shape {shape} must have {claimed:,} bytes, got {size:,}")


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
