"""Several processes on this machine, each with its own device or its share of the cores."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from mlrsnet_lab.executors.crew import Deliver
from mlrsnet_lab.executors.work import Begun, Died, News, Place, Work, answer

CONTEXT = get_context("spawn")
"""A forked process cannot use CUDA, and inherits locks."""


@dataclass(frozen=True)
class _Child:
    process: SpawnProcess
    connection: Connection


class LocalWorkers:
    """As many processes as `devices`, started when first needed.

    Args:
        devices: one for each process; several may share one.
        threads: of each process.
    """

    def __init__(self, devices: Sequence[str], threads: int) -> None:
        self.devices, self.threads, self.size = list(devices), threads, len(devices)
        self.device = self.devices[0]
        self.children: dict[int, _Child] = {}

    def describe(self) -> str:
        """How many, and on what."""
        return f"{self.size} processes on {', '.join(dict.fromkeys(self.devices))}"

    def start(self, number: int, work: Work) -> None:
        """Give a process work; start it if it is not there."""
        child = self.children.get(number)
        if child is None or not child.process.is_alive():
            child = self.children[number] = self._spawn(number)
        with suppress(BrokenPipeError):  # it has just died: `wait` finds out
            child.connection.send((work.function, work.arguments))

    def wait(self, deliver: Deliver, seconds: float) -> None:
        """See `Workers`."""
        by_connection = {child.connection: number for number, child in self.children.items()}
        for ready in wait(list(by_connection), seconds):
            assert isinstance(ready, Connection)
            number = by_connection[ready]
            try:
                while ready.poll():
                    deliver(number, ready.recv())
            except (EOFError, ConnectionResetError):
                deliver(number, Died(self._bury(number)))

    def ask_to_stop(self, number: int) -> None:
        """SIGTERM, which a training obeys at the end of a step. After a terminal's SIGINT, another one would hurry it."""
        child = self.children.get(number)
        if child is not None:
            child.process.terminate()

    def kill(self, number: int) -> None:
        """See `Workers`."""
        child = self.children.get(number)
        if child is not None:
            child.process.kill()
            self._bury(number)

    def close(self) -> None:
        """See `Workers`."""
        for number in list(self.children):
            self.kill(number)

    def _spawn(self, number: int) -> _Child:
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_serve, args=(theirs, self.devices[number], self.threads), daemon=True)
        with _ignored(signal.SIGINT):  # inherited: the given work decides what Ctrl-C does
            process.start()
        theirs.close()  # or its death would not close the pipe
        return _Child(process, ours)

    def _bury(self, number: int) -> str:
        child = self.children.pop(number)
        child.connection.close()
        child.process.join()
        code = child.process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _serve(connection: Any, device: str, threads: int) -> None:
    """What a process does: one piece of work after the other, until nobody gives more."""
    torch.set_num_threads(threads)

    def send(message: Any) -> None:
        try:
            connection.send(message)
        except OSError:
            os._exit(1)  # nobody is left: end as by a kill, so that the run can go on later

    try:
        while True:
            function, arguments = connection.recv()
            send(Begun(f"process {os.getpid()}"))
            send(answer(function, arguments, Place(device, lambda event: send(News(event)))))
    except EOFError:
        return


@contextmanager
def _ignored(number: signal.Signals) -> Iterator[None]:
    """Ignore a signal for a moment. Python allows it in the main thread only; elsewhere this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)
