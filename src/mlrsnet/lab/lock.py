"""One process per run: it locks the run's folder, and the system releases the lock when the process ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class RunInUseError(ValueError):
    """Another process is training in the folder."""


@contextmanager
def held(folder: Path | None) -> Iterator[None]:
    """Hold a folder's lock. Does nothing without a folder, or on a system without such locks."""
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
            raise RunInUseError(f"{folder} is in use by another process: wait for it, or use another folder") from None
        yield
    finally:
        os.close(handle)


def _fcntl() -> Any:
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    return fcntl
