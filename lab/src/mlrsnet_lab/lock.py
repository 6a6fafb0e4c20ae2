"""One process per run: it locks the run's folder or file, and the system releases the lock when the process ends.

Who holds a lock also removes what killed writers left half-written.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mlrsnet.files.writing import explained, remove_unfinished

_handles: set[int] = set()
"""Of the locks that this process holds."""


class RunInUseError(ValueError):
    """Another process is training in the folder, or writing the file."""


@contextmanager
def held(folder: Path | None) -> Iterator[None]:
    """Hold a folder's lock. Does nothing without a folder, or on a system without such locks."""
    if folder is None or _fcntl() is None:
        yield
        return
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    _handles.add(handle)
    try:
        _lock(handle, folder, "folder")
        with explained(folder):
            remove_unfinished(folder)
        yield
    finally:
        if handle in _handles:
            _handles.remove(handle)
            os.close(handle)


def _let_go() -> None:
    """Close what a forked process has inherited: one that reads pictures outlives a killed training by seconds."""
    while _handles:
        os.close(_handles.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


@contextmanager
def held_file(path: Path) -> Iterator[None]:
    """Hold the lock of a file that is about to be written: a file beside it. Fails now, not later, if its folder is read-only."""
    if _fcntl() is None:
        yield
        return
    lock = path.with_name(f".{path.name}.lock")
    handle = _open(lock, path)
    try:
        remove_unfinished(path.parent, f"{path.name}.")
        yield
    finally:
        with suppress(OSError):  # a disk that became read-only has been told
            lock.unlink(missing_ok=True)
        os.close(handle)


def _open(lock: Path, path: Path) -> int:
    """Open and lock a file; again if the one who held it has removed it meanwhile."""
    while True:
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(handle, path, "file")
            if _is_at(handle, lock):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _lock(handle: int, path: Path, what: str) -> None:
    fcntl = _fcntl()
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunInUseError(f"{path} is in use by another process: wait for it, or use another {what}") from None


def _fcntl() -> Any:
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    return fcntl
