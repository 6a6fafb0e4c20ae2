"""A digest inside a zip file, as its comment: for checkpoints of torch, which do not notice a flipped bit.

`torch.load` and every zip program read a sealed file as before. Files from before seals have none.
"""

import hashlib
import io
import re
from pathlib import Path
from typing import BinaryIO

MARK = b"mlrsnet sha256 "
LENGTH = len(MARK) + 64
SEAL = re.compile(re.escape(MARK) + rb"([0-9a-f]{64})")
END = b"PK\x05\x06"
"""A zip file without a comment ends in 22 bytes that begin so, and the last two are the length of the comment."""


class BrokenSealError(ValueError):
    """A file does not hold what was written."""


def sealed(file: io.BytesIO) -> memoryview:
    """The zip file that was written to `file`, with its digest. The bytes are not copied, and `file` grows no more."""
    with file.getbuffer() as content:
        assert content[-22:-18] == END, "not a zip file without a comment"
        content[-2:] = LENGTH.to_bytes(2, "little")
        digest = hashlib.sha256(content).hexdigest()
    file.seek(0, io.SEEK_END)
    file.write(MARK + digest.encode())
    return file.getbuffer()


def check(path: Path) -> None:
    """Raise BrokenSealError if the file is not the one that was sealed. A file without a seal passes."""
    kept, found = _digests(path)
    if kept is not None and kept != found:
        raise BrokenSealError("its digest does not match")


def has_seal(file: BinaryIO, size: int) -> bool:
    """Whether an open file of this size ends in a seal; that it matches is not looked at."""
    file.seek(max(0, size - LENGTH))
    return SEAL.fullmatch(file.read(LENGTH)) is not None


def is_intact(path: Path) -> bool:
    """Whether the file has a seal, and it matches."""
    try:
        kept, found = _digests(path)
    except OSError:
        return False
    return kept is not None and kept == found


def _digests(path: Path) -> tuple[str | None, str]:
    """As the seal has it, and as the content has it; None and nothing without a seal. Reads a piece at a time."""
    total, size = hashlib.sha256(), path.stat().st_size
    with open(path, "rb") as file:
        if not has_seal(file, size):  # then there is no reason to read all of it
            return None, ""
        file.seek(0)
        left = size - LENGTH
        while left and (piece := file.read(min(left, 2**20))):
            total.update(piece)
            left -= len(piece)
        found = SEAL.fullmatch(file.read())
    return (found[1].decode() if found else None), total.hexdigest()
