"""Gives work to processes as they become free, gives it again when one dies, and collects what comes out as it comes."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from mlrsnet_lab.executors.work import Answer, Begun, Died, Message, News, Raised, Returned, Work
from mlrsnet_lab.signals import PoliteStop

RETRIES = 3
PATIENCE = 0.1
"""Seconds until it is looked for news, and for Ctrl-C, at the latest."""

STOP_SECONDS = 60.0
"""How long work may take to stop when it is asked to."""

Deliver = Callable[[int, Message], None]


class WorkerLostError(RuntimeError):
    """The process of a piece of work died each time that it was tried."""


class Workers(Protocol):
    """Processes that do one piece of work at a time each.

    A process that has died is replaced when its number is next given work. `size` may change as machines come and go.
    """

    size: int
    device: str

    def describe(self) -> str:
        """For people: how many there are, and where."""

    def start(self, number: int, work: Work) -> None:
        """Give a process work."""

    def wait(self, deliver: Deliver, seconds: float) -> None:
        """Deliver the messages that there are; wait for the first one, but not longer than this."""

    def ask_to_stop(self, number: int) -> None:
        """Ask a process's work to stop; it may take a while."""

    def kill(self, number: int) -> None:
        """End a process at once."""

    def close(self) -> None:
        """End all processes."""


@dataclass(frozen=True)
class Done:
    """A piece of work and what it returned, or why there is nothing."""

    work: Work
    value: Any = None
    lost: WorkerLostError | None = None


@dataclass(frozen=True)
class Counts:
    """How many pieces of work run now, are done, and were given again because a process died."""

    running: int = 0
    done: int = 0
    again: int = 0


class Crew:
    """Workers, and who does what.

    Args:
        workers: the processes.
        retries: how often work is given again after the death of its process.
        on_change: called with the counts whenever they change.
    """

    def __init__(
        self,
        workers: Workers,
        retries: int = RETRIES,
        on_change: Callable[[Counts], object] = lambda counts: None,
    ) -> None:
        self.workers, self.retries, self.on_change = workers, retries, on_change
        self.running: dict[int, Work] = {}
        self.tried = Counter[str]()
        self.counts = Counts()
        self._waiting: list[Work] = []
        self._answers: list[tuple[int, Answer | Died]] = []

    def run(
        self,
        take: Callable[[], Work | None],
        hear: Callable[[Work, Begun | Died | Any], None] = lambda work, event: None,
        *,
        stoppable: bool = True,
    ) -> Iterator[Done]:
        """Yield each piece of work when it is done, in any order.

        Args:
            take: returns the next piece of work, None if none is ready now. If nothing runs either, that is the end.
            hear: called with what work tells, with `Begun` and with `Died`.
            stoppable: stop on Ctrl-C and SIGTERM. False if the caller decides when to stop.

        Raises:
            KeyboardInterrupt: on Ctrl-C or SIGTERM, when all work has stopped.
            Exception: that a piece of work raised; all other work is stopped first.
        """
        guard: AbstractContextManager[Any] = PoliteStop() if stoppable else nullcontext(PoliteStop())
        with guard as stop:
            try:
                while not stop.asked and self._give(take):
                    self._listen(hear)
                    yield from self._collect(stop)
                if stop.asked:
                    self._stop(hear)
                    raise KeyboardInterrupt
            except Exception:
                self._stop(lambda work, event: None)  # it may be `hear` that failed
                raise
            finally:
                self._drop()

    def _give(self, take: Callable[[], Work | None]) -> bool:
        """Give work to whoever is free; return whether any runs."""
        for number in range(self.workers.size):
            if number in self.running:
                continue
            work = self._waiting.pop() if self._waiting else take()
            if work is None:
                break
            self.running[number] = work
            self._count()
            self.workers.start(number, work)
        return bool(self.running)

    def _listen(self, hear: Callable[[Work, Any], None]) -> None:
        def deliver(number: int, message: Message) -> None:
            work = self.running.get(number)
            if work is None:
                return
            if isinstance(message, News):
                hear(work, message.event)
                return
            if isinstance(message, Begun | Died):
                hear(work, message)
            if not isinstance(message, Begun):
                self._answers.append((number, message))

        self.workers.wait(deliver, PATIENCE)

    def _collect(self, stop: PoliteStop) -> Iterator[Done]:
        while self._answers:
            number, said = self._answers.pop(0)
            work = self.running.pop(number)
            if isinstance(said, Returned):
                self._count(done=1)
                yield Done(work, said.value)
            elif isinstance(said, Died):
                yield from self._again(work, said.reason)
            elif isinstance(said, Raised) and isinstance(said.error, work.again):
                yield from self._again(work, f"{type(said.error).__name__}: {said.error}")
            elif isinstance(said, Raised):
                raise said.error
            else:
                stop.asked = True  # a terminal's Ctrl-C reaches every process

    def _again(self, work: Work, reason: str) -> Iterator[Done]:
        """Give the work again, or give up."""
        self.tried[work.name] += 1
        if self.tried[work.name] <= self.retries:
            self._waiting.insert(0, work)
            self._count(again=1)
            return
        self._count(done=1)
        times = f"{self.tried[work.name]} times" if self.retries else "once"
        yield Done(work, lost=WorkerLostError(f"it was tried {times}, and its process ended: {reason}"))

    def _stop(self, hear: Callable[[Work, Any], None]) -> None:
        """Let polite work stop where it can go on later; break off the rest. Then end all these processes."""
        asked = dict(self.running)
        for number, work in asked.items():
            if work.polite:
                self.workers.ask_to_stop(number)
            else:
                self.workers.kill(number)
                del self.running[number]
        until = monotonic() + STOP_SECONDS
        while self.running and monotonic() < until:
            self._listen(hear)
            for number, _ in self._answers:
                self.running.pop(number, None)
            self._answers.clear()
        for number in asked:
            self.workers.kill(number)

    def _drop(self) -> None:
        """End the processes whose work nobody waits for any more."""
        for number in list(self.running):
            self.workers.kill(number)
        self.running.clear()
        self.tried.clear()
        self._waiting.clear()
        self._answers.clear()

    def _count(self, done: int = 0, again: int = 0) -> None:
        counts = self.counts
        self.counts = Counts(len(self.running), counts.done + done, counts.again + again)
        self.on_change(self.counts)
