"""Files that no reader may wait for or take memory for, how it refuses them, and modules that read files by themselves."""

import os
import re

import pytest

UNCHECKED = re.compile(
    r"(torch|np|json|pickle)\.loads?\(|tarfile\.open\(|ZipFile\(|(?i:image.*\.open\b)|imread|\.read_(text|bytes)\("
)


def huge(path):
    """200 GiB of nothing, which take no room on the disk."""
    with open(path, "wb") as file:
        file.truncate(200 * 2**30)


FILES = {"empty": lambda path: path.touch(), "huge": huge}
if hasattr(os, "mkfifo"):  # Windows has no pipes with names
    FILES |= {"pipe": os.mkfifo, "endless": lambda path: os.symlink("/dev/zero", path)}
"""Makers of files that hold nothing, or never end."""


def complaint(read, path):
    """The one line that a reader refuses a file with."""
    with pytest.raises((ValueError, OSError)) as found:
        read(path)
    message = str(found.value)
    assert message.isprintable()
    assert len(message) < 1000
    return message


def with_two_directories(path):
    """A zip file whose directory is there twice."""
    raw = path.read_bytes()
    end = raw.rindex(b"PK\x05\x06")
    length = int.from_bytes(raw[end + 12 : end + 16], "little")
    path.write_bytes(raw[:end] + raw[end - length : end] + raw[end:])
    return path


def readers_of_their_own(package):
    """The modules of a package that read files without the checks for strangers."""
    return {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(UNCHECKED.search(line.partition("#")[0]) and '"""' not in line for line in path.read_text().splitlines())
    }
