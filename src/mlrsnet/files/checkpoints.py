"""What `torch.save` wrote, from strangers.

`torch.load(weights_only=True)` runs no code, but a file of a kilobyte can still make it take any amount of memory: by a compressed
member, or by a call that it allows, such as `bytearray(10**12)`. So this is checked first: members are stored as they are, only
what builds tensors is called, and nothing claims more bytes than the file has. Afterwards, no tensor may be a view that is larger
than the file, and no list may repeat itself without end.
"""

import io
import os
import struct
import zipfile
from typing import Any, BinaryIO

import torch

from mlrsnet.files.pickles import check_places, steps
from mlrsnet.files.untrusted import MOST_LEVELS, open_regular

LARGEST_PICKLE = 8 * 2**20
"""Bytes of the part of a checkpoint that is no tensor, enough for ten thousands of them. It takes seconds to look at so many."""

LARGEST_LEGACY, MOST_LEGACY_TENSORS = 2**20, 1000
"""Bytes and tensors of a file in torch's old format. The authors' have 49,000 bytes and 10 tensors."""

MOST_VALUES = 10_000_000
"""That a checkpoint may hold, a repeated one counted every time."""

LARGEST_DIRECTORY = 16 * 2**20
"""Bytes of an archive's list of members, about 100,000 of them."""

LONGEST_COMMENT = 128
"""Bytes behind an archive's directory: room for a digest."""

_END, _LOCATOR, _END_64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sLQL"), struct.Struct("<4sQ2H2L4Q")

ZIP_START = b"PK\x03\x04"
BEFORE_LEGACY = 3
"""Pickles before that of the tensors: a constant, the version of the format, facts about the machine."""


def load(path: str | os.PathLike[str], *, legacy: bool = False) -> Any:
    """Tensors on the CPU and plain values. `legacy`: also as torch wrote them before version 1.6."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(len(ZIP_START))
        if start != ZIP_START and not legacy:
            raise ValueError("it must be an archive as torch.save writes it, got another format")
        content = _checked_archive(file, size) if start == ZIP_START else _checked_legacy(file, size)
        # An open file: given a name, torch.load may choose another reader by its ending.
        found = torch.load(content, map_location="cpu", weights_only=True)
    _check_values(found, size)
    return found


def open_zip(file: BinaryIO) -> zipfile.ZipFile:
    """An archive whose directory lies where every reader finds the same one, and is not too long."""
    end, length, begin = _end(file)
    if begin + length != end or length > LARGEST_DIRECTORY:
        raise ValueError(
            f"its directory must end at byte {end:,} and have at most {LARGEST_DIRECTORY:,}, got {length:,}"
        )
    return zipfile.ZipFile(file)


def _end(file: BinaryIO) -> tuple[int, int, int]:
    """Where the directory ends, its length and where it begins. Only a short comment may follow."""
    size = file.seek(0, os.SEEK_END)
    first = file.seek(max(0, size - _END.size - LONGEST_COMMENT))
    tail = file.read()
    place = tail.rfind(b"PK\x05\x06")
    if 0 <= place <= len(tail) - _END.size:
        *_, length, begin, comment = _END.unpack_from(tail, place)
        if first + place + _END.size + comment == size:
            return _end_64(file, first + place, length, begin)
    raise ValueError("it must be a zip archive that ends with its directory, got something else: it may be cut")


def _end_64(file: BinaryIO, end: int, length: int, begin: int) -> tuple[int, int, int]:
    """The same, of an archive that may have the form for large files."""
    if end < _LOCATOR.size + _END_64.size:
        return end, length, begin
    file.seek(end - _LOCATOR.size)
    mark, _, place, _ = _LOCATOR.unpack(file.read(_LOCATOR.size))
    if mark != b"PK\x06\x07":
        return end, length, begin
    end -= _LOCATOR.size + _END_64.size
    file.seek(end)
    mark, *_, length, begin = _END_64.unpack(file.read(_END_64.size))
    if mark != b"PK\x06\x06" or place != end:
        raise ValueError("it must be a zip archive with one directory, got a damaged one")
    return end, length, begin


def _checked_archive(file: BinaryIO, size: int) -> BinaryIO:
    """torch stores members as they are: together they cannot be larger than the file."""
    with open_zip(file) as archive:
        sizes = {member.filename: member.file_size for member in archive.infolist()}
        packed = [member.filename for member in archive.infolist() if member.compress_type != zipfile.ZIP_STORED]
        if packed:
            raise ValueError(f"its members must not be compressed, got {packed[0]!r}")
        total = sum(member.file_size for member in archive.infolist())
        if total > size:
            raise ValueError(f"its members must have at most the file's {size:,} bytes together, got {total:,}")
        for name in (name for name in sizes if name.endswith(".pkl")):
            if sizes[name] > LARGEST_PICKLE:
                raise ValueError(f"its values must have at most {LARGEST_PICKLE:,} bytes, got {sizes[name]:,}")
            beside = f"{name.rpartition('/')[0]}/data/"
            places = {other.removeprefix(beside): size for other, size in sizes.items() if other.startswith(beside)}
            check_places(steps(archive.read(name)), places)
    file.seek(0)
    return file


def _checked_legacy(file: BinaryIO, size: int) -> BinaryIO:
    """The old format takes memory as its pickle says: no size, shape or place in it may be larger than the file."""
    if size > LARGEST_LEGACY:
        raise ValueError(f"a file in torch's old format must have at most {LARGEST_LEGACY:,} bytes, got {size:,}")
    file.seek(0)
    content = io.BytesIO(file.read(size))  # a file would take memory for as many bytes as it is asked for
    for _ in range(BEFORE_LEGACY):
        list(steps(content))
    found = list(steps(content))
    largest = max((value for _, value in found if type(value) is int), default=0)
    if largest > size:
        raise ValueError(f"its tensors must have at most the file's {size:,} bytes, got {largest:,}")
    tensors = sum(name in ("BINPERSID", "PERSID") for name, _ in found)
    if tensors > MOST_LEGACY_TENSORS:
        raise ValueError(
            f"a file in torch's old format must have at most {MOST_LEGACY_TENSORS:,} tensors, got {tensors:,}"
        )
    content.seek(0)
    return content


def _check_values(value: Any, size: int) -> None:
    """Level by level: a list that holds a list ten times, which does so again, is small in the file and endless for its users."""
    level, total = [value], 0
    for _ in range(MOST_LEVELS):
        for tensor in level:
            if isinstance(tensor, torch.Tensor) and tensor.numel() > size:
                raise ValueError(
                    f"a tensor must have at most the file's {size:,} bytes, got shape {tuple(tensor.shape)}"
                )
        total += len(level)
        inside = [node for node in level if isinstance(node, dict | list | tuple)]
        if total + sum(map(len, inside)) > MOST_VALUES:
            raise ValueError(f"it must hold at most {MOST_VALUES:,} values, got more")
        level = [item for node in inside for item in (node.values() if isinstance(node, dict) else node)]
        if not level:
            return
    raise ValueError(f"its values must be at most {MOST_LEVELS} levels deep, got more")
