"""Files that a kill, a full disk or a power cut leaves whole: complete, or as they were before."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = ".part"
"""The ending of a file that is still being written."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR)


def copy_of(path: Path) -> Path:
    """Where a second copy of a file stands: schedule.safetensors -> schedule.copy.safetensors."""
    return path.with_name(f"{path.stem}.copy{path.suffix}")


def write_atomically(
    target: Path, content: bytes | memoryview, *, durable: bool = True, before: Callable[[], None] = lambda: None
) -> None:
    """Write to a temporary file beside `target`, flush it to disk, and rename.

    Args:
        target: the file; its folder is made if needed.
        content: all of it.
        durable: wait until a power cut could not undo it. A kill cannot undo it in either case.
        before: called right before the file is replaced, when nothing can fail for want of room any more.

    Raises:
        OSError: names the file, and says what to do. The file is as it was.
    """
    with explained(target, f" ({len(content):,} bytes)"):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=UNFINISHED)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            before()
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        if durable:
            _flush_names(target.parent)


def remove_unfinished(folder: Path, name: str = "") -> None:
    """Remove what killed writers of a file, or of all files of a folder, left. Only for one who holds their lock."""
    for path in folder.iterdir():
        if path.name.startswith(f".{name}") and path.name.endswith(UNFINISHED):
            path.unlink(missing_ok=True)


@contextmanager
def explained(target: Path, size: str = "") -> Iterator[None]:
    """Turn an error of the disk into one that names the file and says what to do."""
    try:
        yield
    except OSError as error:
        number = error.errno or errno.EIO
        if number in FULL:
            then = "free some space"
        else:
            then = "make its folder writable, or choose another" if number in CLOSED else "check the disk"
        raise OSError(
            number,
            f"{os.strerror(number)}: {target}{size} cannot be written; what was there is unchanged: {then}, and run the same "
            "command again",
        ) from None


def _flush_names(folder: Path) -> None:
    """Flush the folder itself, or a power cut could undo a rename. Not every system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
