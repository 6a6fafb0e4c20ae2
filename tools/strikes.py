"""What is done to a command: killed, stopped, its disk filled or locked; and what came of it."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.faulty_commands import Command
from tools.forked import Process, plain_name, start

DISK = 8 * 2**20
"""Bytes of a disk that is filled or locked."""


@dataclass
class Tally:
    """What was done to one command, and what came of it."""

    landed: Counter[str] = field(default_factory=Counter)
    chains: int = 0
    continuations: int = 0
    differing_bits: int = 0
    litter: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def told(self) -> dict[str, Any]:
        """For the record."""
        return {
            "strikes": sum(self.landed.values()),
            "landed": dict(sorted(self.landed.items())),
            "runs": self.chains,
            "continuations": self.continuations,
            "differing_bits": self.differing_bits,
            "left_over": self.litter,
            **({"errors": sorted(set(self.errors))} if self.errors else {}),
            "seconds": round(self.seconds, 1),
        }


def differing_bits(one: dict[str, bytes], other: dict[str, bytes]) -> int:
    """How many bits differ in what two runs left.

    >>> differing_bits({"a": b"1", "b": b"xy"}, {"a": b"0", "b": b"x"})
    9
    """
    total = 0
    for name in one.keys() | other.keys():
        a, b = one.get(name, b""), other.get(name, b"")
        size = min(len(a), len(b))
        total += (int.from_bytes(a[:size]) ^ int.from_bytes(b[:size])).bit_count() + 8 * abs(len(a) - len(b))
    return total


class Trial:
    """One command: the bits of a run that was left alone, and what is done to others."""

    def __init__(self, command: Command, root: Path, log: Path, chance: random.Random) -> None:
        self.command, self.root, self.log, self.chance = command, root, log, chance
        begin = time.perf_counter()
        code, told = self.start(root / "whole", float("inf")).wait()
        self.seconds = time.perf_counter() - begin
        if code:
            raise RuntimeError(f"{command.name} fails when left alone: {log.read_text()[-2000:]}")
        self.calls, self.whole = int(told), command.left(root / "whole")
        self.pages = 1 + sum(path.stat().st_size for path in (root / "whole").rglob("*") if path.is_file()) // 4096

    def start(self, folder: Path, at: float = 0) -> Process:
        """Start the command in a folder; what it prints goes elsewhere, since the folder's disk may be full."""
        return start(self.command, folder, self.log, at)

    def strikes(self, kind: str, count: int, strike: Callable[[Path], tuple[int, str]]) -> Tally:
        """Strike runs until it has happened `count` times; every run is continued to its end."""
        tally, begin = Tally(), time.perf_counter()
        self.log.write_text("")
        while sum(tally.landed.values()) < count:
            folder = self.root / f"{kind}{tally.chains}"
            tally.chains += 1
            while True:
                is_over = sum(tally.landed.values()) >= count
                code, landed = self.start(folder).wait() if is_over else strike(folder)
                if code == 0 or self._was_over(folder, code):
                    break
                if code in (1, 2, 70) and not landed:
                    raise RuntimeError(f"{self.command.name}: {self.log.read_text()[-2000:]}")
                tally.landed[landed] += 1
                tally.continuations += 1
            self._compare(folder, tally)
        tally.seconds = time.perf_counter() - begin
        tally.errors = [line for line in self.log.read_text().splitlines() if "error" in line]
        return tally

    def _was_over(self, folder: Path, code: int) -> bool:
        """Whether the last strike came when there was nothing left to do but to tell."""
        return code == 2 and self.command.is_over(folder)

    def _compare(self, folder: Path, tally: Tally) -> None:
        tally.differing_bits += differing_bits(self.command.left(folder), self.whole)
        tally.litter += [
            str(path.relative_to(folder))
            for path in folder.rglob("*")
            if path.name.endswith((".part", ".pt", ".removed"))
        ]

    def at_a_time(self, number: int) -> Callable[[Path], tuple[int, str]]:
        """A signal after a random time."""

        def strike(folder: Path) -> tuple[int, str]:
            process = self.start(folder)
            time.sleep(self.chance.uniform(0, 1.1 * self.seconds))
            os.kill(process.pid, number)
            code, _ = process.wait()
            if number != signal.SIGKILL:
                return code, "at a time"
            unfinished = [plain_name(path.name) for path in folder.rglob(".*.part")]
            return code, f"at a time, in {unfinished[0]}" if unfinished else "at a time, between writes"

        return strike

    def at_a_call(self, folder: Path) -> tuple[int, str]:
        """SIGKILL at a random call that writes."""
        code, told = self.start(folder, self.chance.randint(1, self.calls)).wait()
        return code, told

    def kill(self, folder: Path) -> tuple[int, str]:
        """SIGKILL, in one of these ways."""
        return self.chance.choice((self.at_a_time(signal.SIGKILL), self.at_a_call))(folder)

    def fill_disk(self, folder: Path) -> tuple[int, str]:
        """Leave too little space on the disk that the folder is on, until the command has failed."""
        ballast = folder.parent / "ballast"
        space = os.statvfs(folder.parent)
        free = space.f_bavail * space.f_frsize
        ballast.write_bytes(bytes(max(0, free - 4096 * self.chance.randint(0, self.pages))))
        code, _ = self.start(folder).wait()
        ballast.unlink()
        return code, "full disk" if code == 1 else ""

    def lock_disk(self, folder: Path) -> tuple[int, str]:
        """Make the disk read-only after a random time, until the command has failed."""
        process = self.start(folder)
        time.sleep(self.chance.uniform(0, self.seconds))
        if not any(
            _remount(folder.parent, "ro") for _ in range(20)
        ):  # a command that holds a file open is begun on such a disk
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            _remount(folder.parent, "ro")
            process = self.start(folder)
        code, _ = process.wait()
        _remount(folder.parent, "rw")
        return code, "read-only disk" if code == 1 else ""


def _remount(disk: Path, how: str) -> bool:
    return subprocess.run(["mount", "-o", f"remount,{how}", disk], capture_output=True).returncode == 0


@contextmanager
def small_disk(asked: bool) -> Iterator[Path | None]:
    """A real file system of its own; None if none was asked for, or without the right to make one."""
    with tempfile.TemporaryDirectory() as place:
        words = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", place]
        made = asked and sys.platform == "linux" and subprocess.run(words, capture_output=True).returncode == 0
        try:
            yield Path(place) if made else None
        finally:
            if made:
                subprocess.run(["umount", place], check=True)
