"""A command in a forked process that may kill itself at any of the calls that write files."""

import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.faulty_commands import Command

WATCHED = ("fsync", "replace", "link", "chmod", "unlink")
"""Functions of `os` before which a process may kill itself; also before a temporary file is made, and in the middle of a write."""


class Bomb:
    """Counts calls that write files; kills its process at the given one, after it has told where through a pipe."""

    def __init__(self, at: float, tell: int) -> None:
        self.at, self.tell, self.count = at, tell, 0
        self.fdopen = os.fdopen

    def set(self) -> None:
        """From now on."""
        for name in WATCHED:
            setattr(os, name, self._watched(name, getattr(os, name)))
        tempfile.mkstemp = self._watched("mkstemp", tempfile.mkstemp)  # type: ignore[assignment]
        os.fdopen = self._opened  # type: ignore[assignment]

    def _watched(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self._tick(name, options.get("prefix") or arguments[-1 if name == "replace" else 0])
            return plain(*arguments, **options)

        return call

    def _opened(self, handle: int, *arguments: Any, **options: Any) -> Any:
        file = self.fdopen(handle, *arguments, **options)
        plain = file.write

        def write(content: bytes) -> int:
            half = len(content) // 2
            plain(content[:half])
            file.flush()
            self._tick("write", handle)
            return half + plain(content[half:])

        return _Writer(file, write)

    def _tick(self, what: str, target: Any) -> None:
        self.count += 1
        if self.count == self.at:
            place = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.fspath(target)
            os.write(
                self.tell,
                f"{what} of {'the folder' if Path(place).is_dir() else plain_name(Path(place).name)}".encode(),
            )
            os.kill(os.getpid(), signal.SIGKILL)


class _Writer:
    """A file whose `write` is another one."""

    def __init__(self, file: Any, write: Callable[[bytes], int]) -> None:
        self.file, self.write = file, write

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def plain_name(name: str) -> str:
    """Without what differs from run to run.

    >>> plain_name(".record.copy.json.a1b2c3.part"), plain_name(".checkpoint.pt.a1b2c3.part.old.part"), plain_name("kill15")
    ('record.copy.json', 'checkpoint.pt', 'the folder')
    """
    known = re.search(r"[a-z]+(\.copy|\.previous)?\.(pt|npz|jsonl?|safetensors(\.json)?)(?![a-z])", name)
    return known[0] if known else "the folder"


@dataclass
class Process:
    """A command in a process of its own, and the end of a pipe on which it tells where it kills itself."""

    pid: int
    pipe: int

    def wait(self) -> tuple[int, str]:
        """Exit code, negative for a signal; and what it told."""
        status = os.waitpid(self.pid, 0)[1]
        told = os.read(self.pipe, 4096).decode()
        os.close(self.pipe)
        return os.waitstatus_to_exitcode(status), told


def start(command: Command, folder: Path, log: Path, at: float = 0) -> Process:
    """Fork and run a command in a folder; with `at`, it kills itself at that call. At infinity it only tells their number."""
    folder.mkdir(exist_ok=True, parents=True)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return Process(pid, reading)
    code = 70
    try:
        sys.stdout = sys.stderr = open(log, "a")  # noqa: SIM115 (until the process ends)
        os.chdir(folder)
        signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # a program in the background may have been told to ignore it
        bomb = Bomb(at, writing)
        if at:
            bomb.set()
        code = command.run()
        if at == float("inf"):
            os.write(writing, str(bomb.count).encode())
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    finally:
        os._exit(code)
