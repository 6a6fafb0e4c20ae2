"""Text and JSON from strangers: kind, size, depth and numbers are checked before or while they are read. Nothing is executed.

Errors are a `ValueError` or an `OSError` that states the rule and what was found. Callers add the file and what to do.
"""

import json
import math
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

LARGEST_DOCUMENT = 16 * 2**20
"""Bytes of one JSON document. Records have some kilobytes. Parsed, a document can take 30 times its size: half a gigabyte."""

LARGEST_LINES = 256 * 2**20
"""Bytes of a file with one document per line, such as a pack of many runs."""

MOST_LEVELS = 64
"""Of objects and lists in each other. What we write has fewer than ten; Python's own functions end at about a thousand."""

MOST_DIGITS = 308
"""Of a whole number: a float can hold no longer one."""

LONGEST_REASON = 300


def reason(error: BaseException) -> str:
    """Why a file could not be read, as one line; the kind of error if it has no words."""
    return one_line(str(error)) or type(error).__name__


def one_line(text: str) -> str:
    """A text as one printable line, not too long."""
    words = " ".join(printable(text).split())
    return words if len(words) <= LONGEST_REASON else f"{words[: LONGEST_REASON - 3]}..."


def printable(text: str) -> str:
    """A text without control characters, by which words in a file could move a terminal's cursor or change its title."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read its bytes. A pipe or a device, which may never end, is refused without waiting for it."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it must be a plain file, got a folder, a pipe or a device")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """The content of a file of at most so many bytes; a larger one is not read."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
    if max(size, len(content)) > most:
        raise ValueError(f"it must have at most {most:,} bytes, got {max(size, len(content)):,}")
    return content


def read_text(path: str | os.PathLike[str], most: int = LARGEST_DOCUMENT) -> str:
    """The content of a file of UTF-8 text."""
    content = read_bytes(path, most)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it must be UTF-8 text, got {error.reason} at byte {error.start}") from None


def read_json(path: str | os.PathLike[str], *, finite: bool = True) -> Any:
    """The one document in a file; see `parse_json`."""
    return parse_json(read_text(path), finite=finite)


def parse_json(text: str | bytes, *, finite: bool = True) -> Any:
    """A JSON document of limited size and depth. `finite`: refuse NaN and infinite numbers, which JSON does not have.

    >>> parse_json('{"lr": [0.1, 1e-3]}')
    {'lr': [0.1, 0.001]}
    """
    if len(text) > LARGEST_DOCUMENT:
        raise ValueError(f"a JSON document must have at most {LARGEST_DOCUMENT:,} characters, got {len(text):,}")
    hooks: dict[str, Any] = {"parse_constant": _refuse, "parse_float": _number} if finite else {}
    try:
        value = json.loads(text, parse_int=_whole, **hooks)
    except RecursionError:
        raise _too_deep() from None
    _check_depth(value)
    return value


def _refuse(word: str) -> float:
    raise ValueError(f"numbers must be finite, got {word}")


def _number(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse(f"{digits[:40]}")


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"whole numbers must have at most {MOST_DIGITS} digits, got one of {len(digits):,}")
    return int(digits)


def _check_depth(value: Any) -> None:
    """Level by level, not by recursion, whose depth is what is in question."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        inside = (node.values() if isinstance(node, dict) else node for node in level if isinstance(node, dict | list))
        level = [item for items in inside for item in items if isinstance(item, dict | list)]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"objects and lists must be at most {MOST_LEVELS} levels deep, got more")


def inside(folder: Path, place: str) -> bool:
    """Whether a relative path from a file stays below a folder, also where links lead elsewhere."""
    try:
        return (folder / place).resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, or a circle of links
        return False
