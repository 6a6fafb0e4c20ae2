"""Files that a kill, a full disk or a power cut leaves whole: complete, or as they were before."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlrsnet._files import seals

UNFINISHED = ".part"
"""The ending of a file that is still being written."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR)


def previous(path: Path) -> Path:
    """Where the file stands that `path` replaced: checkpoint.pt -> checkpoint.previous.pt."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def copy_of(path: Path) -> Path:
    """Where a second copy of a file stands: schedule.safetensors -> schedule.copy.safetensors."""
    return path.with_name(f"{path.stem}.copy{path.suffix}")


def write_atomically(
    target: Path, content: bytes | memoryview, *, keep_previous: bool = False, durable: bool = True
) -> None:
    """Write to a temporary file beside `target`, flush it to disk, and rename.

    Args:
        target: the file; its folder is made if needed.
        content: all of it.
        keep_previous: a sealed file that is replaced stays as `previous(target)`, unless it is damaged.
        durable: wait until a power cut could not undo it. A kill cannot undo it in either case.

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
            if keep_previous and seals.is_intact(target):
                _keep(target, f"{temporary}.old{UNFINISHED}")
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


def _keep(target: Path, temporary: str) -> None:
    """Give the file a second name. Where there are no hard links, it loses the first one for a moment."""
    if previous(target).exists() and os.path.samefile(target, previous(target)):
        return  # a kill came after this and before the rename; renaming one name of a file to another does nothing
    try:
        os.link(target, temporary)
    except OSError:
        os.replace(target, previous(target))
    else:
        os.replace(temporary, previous(target))


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
