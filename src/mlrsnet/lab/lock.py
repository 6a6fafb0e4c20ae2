"""One process a run: whoever trains in a folder holds its lock, which the system takes back when the process ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class RunInUseError(ValueError):
    """Another process trains in the folder."""


@contextmanager
def held(folder: Path | None) -> Iterator[None]:
    """Hold a folder's lock; nothing where there is no folder, or the system knows no such locks."""
    fcntl = _fcntl()
    if folder is None or fcntl is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunInUseError(
                f"{folder} is being trained by another process: wait for it, or use another folder"
            ) from None
        yield
    finally:
        os.close(handle)


def _fcntl() -> Any:
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    return fcntl
