"""Workers on a Ray cluster, one actor each. The only module that imports ray.

An actor keeps its process, so torch is imported once and a GPU stays with it. Ray places actors where there is room.
"""

import os
import signal
import socket
from collections import deque
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Any

import torch

from mlrsnet_lab.executors.crew import Deliver
from mlrsnet_lab.executors.work import Answer, Begun, Died, News, Place, Raised, Work, answer

LONGEST_REASON = 300
"""Letters of Ray's error messages, which end with what matters."""

LOOK_SECONDS = 10.0
"""Between two looks at the size of the cluster."""

MOST_EVENTS = 20_000
"""Kept until they are read; older ones are dropped."""


class Mailbox:
    """What work tells, on its way to the process that gave it, and who should stop, on the way back."""

    def __init__(self) -> None:
        self.events: deque[tuple[int, Any]] = deque(maxlen=MOST_EVENTS)
        self.stopping: set[int] = set()

    def put(self, actor: int, event: Any) -> bool:
        """Keep an event of an actor; return whether its work should stop."""
        self.events.append((actor, event))
        return actor in self.stopping

    def read(self) -> list[tuple[int, Any]]:
        """All events since the last call."""
        found = list(self.events)
        self.events.clear()
        return found

    def stop(self, actor: int) -> None:
        """From now on this actor is told to stop."""
        self.stopping.add(actor)


class Worker:
    """One process of the cluster. Its `name` is a number that no other actor has had."""

    def __init__(self, name: int, mailbox: Any, device: str, threads: int, folder: str) -> None:
        self.name, self.mailbox, self.device = name, mailbox, device
        self.asked = False
        torch.set_num_threads(threads)
        if os.path.isdir(folder):
            os.chdir(folder)  # so that relative paths in a spec mean the same

    def do(self, function: Any, arguments: tuple[Any, ...]) -> Answer:
        """Do one piece of work."""
        self._put(Begun(f"{socket.gethostname()}, process {os.getpid()}"))
        return answer(function, arguments, Place(self.device, lambda event: self._put(News(event))))

    def _put(self, message: Begun | News) -> None:
        """Send it and wait until it has arrived, so that nothing is told after the end."""
        ray = need_ray()
        try:
            stop = ray.get(self.mailbox.put.remote(self.name, message))
        except ray.exceptions.RayActorError:
            return  # the mailbox starts again elsewhere; the work matters more
        if stop and not self.asked:
            self.asked = True
            handler = signal.getsignal(signal.SIGINT)  # Ray blocks the signal itself
            if callable(handler):
                handler(signal.SIGINT, None)  # a training stops at the end of the step


class RayWorkers:
    """Actors on a cluster.

    Args:
        device: `cpu`, `cuda` or `auto`: a GPU each if the cluster has any.
        address: of the cluster, `auto` for the one that this machine belongs to; None starts one on this machine.
        size: how many; as many as there is room for if None.
        cpus: cores of each, which are also torch's threads.
        gpus: of each; a share such as 0.25 puts four on one GPU. None is 1 on a GPU and 0 on CPUs.
    """

    def __init__(
        self,
        device: str = "auto",
        address: str | None = None,
        size: int | None = None,
        cpus: float = 1,
        gpus: float | None = None,
    ) -> None:
        self.ray = ray = need_ray()
        self.is_ours = not ray.is_initialized()
        if self.is_ours:
            _connect(ray, address, size, cpus)
        self.cpus, self.device = cpus, _device(device, ray.cluster_resources())
        self.gpus = (1.0 if self.device == "cuda" else 0.0) if gpus is None else gpus
        self.limit(size)
        # Zero cores: it does next to nothing, and must find room on a full cluster.
        self.mailbox = ray.remote(num_cpus=0, max_restarts=-1)(Mailbox).remote()
        self.maker = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus)(Worker)
        self.actors: dict[int, tuple[int, Any]] = {}  # by the worker's number: the actor's name, and the actor
        self.refs: dict[Any, int] = {}
        self.names = count()

    def describe(self) -> str:
        """How many, and what each has."""
        each = f"{self.gpus:g} GPU" if self.gpus else f"{self.cpus:g} core{'s' if self.cpus > 1 else ''}"
        return f"{self.size} Ray workers, {each} each"

    def limit(self, most: int | None) -> None:
        """Use at most this many, and no more than there is room for now: work for an actor without room would wait for ever."""
        room = _room(self.ray.cluster_resources(), self.cpus, self.gpus)
        self.most, self.size, self.looked_at = most, min(most or room, room), monotonic()

    def start(self, number: int, work: Work) -> None:
        """Give an actor work; make it if it is not there."""
        if number not in self.actors:
            name, threads = next(self.names), max(1, int(self.cpus))
            self.actors[number] = name, self.maker.remote(name, self.mailbox, self.device, threads, os.getcwd())
        self.refs[self.actors[number][1].do.remote(work.function, work.arguments)] = number

    def wait(self, deliver: Deliver, seconds: float) -> None:
        """See `Workers`. Now and then it looks whether machines have come or gone."""
        if monotonic() - self.looked_at > LOOK_SECONDS:
            with suppress(ValueError):  # none is left: keep on trying
                self.limit(self.most)
        ready, _ = self.ray.wait(list(self.refs), num_returns=1, timeout=seconds)
        if ready:  # and all others that are ready, too
            ready, _ = self.ray.wait(list(self.refs), num_returns=len(self.refs), timeout=0)
        numbers = {name: number for number, (name, _) in self.actors.items()}
        for name, message in self._letters():
            if name in numbers:  # not one that was ended
                deliver(numbers[name], message)
        for ref in ready:
            number = self.refs.pop(ref)
            try:
                deliver(number, self.ray.get(ref))
            except self.ray.exceptions.RayTaskError as error:  # a function that cannot be imported there
                deliver(number, Raised(RuntimeError(f"a Ray worker cannot do this work: {_short(error)}")))
            except self.ray.exceptions.RayError as error:  # the actor's process or machine died
                self.kill(number)
                deliver(number, Died(_short(error)))

    def ask_to_stop(self, number: int) -> None:
        """The worker hears of it when it next tells something."""
        if number in self.actors:
            self.mailbox.stop.remote(self.actors[number][0])

    def kill(self, number: int) -> None:
        """See `Workers`."""
        self.refs = {ref: owner for ref, owner in self.refs.items() if owner != number}
        if number in self.actors:
            self.ray.kill(self.actors.pop(number)[1])

    def close(self) -> None:
        """End the actors, and the cluster if it was started here."""
        for number in list(self.actors):
            self.kill(number)
        self.ray.kill(self.mailbox)
        if self.is_ours:
            self.ray.shutdown()

    def _letters(self) -> list[tuple[int, Any]]:
        try:
            return list(self.ray.get(self.mailbox.read.remote()))
        except self.ray.exceptions.RayActorError:
            return []  # it starts again, empty


def need_ray() -> Any:
    """The package, or an error that says how to get it."""
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise ImportError("--executor ray needs ray, which is not installed: pip install 'mlrsnet-lab[ray]'") from None
    return ray


def _connect(ray: Any, address: str | None, size: int | None, cpus: float) -> None:
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine
        os.environ.setdefault("RAY_worker_niceness", "0")  # as other local runs; Ray's 15 comes after everything else
        cores = None if size is None else max(os.cpu_count() or 1, int(size * cpus))
        try:
            ray.init(address="local", num_cpus=cores, include_dashboard=False, **quiet)
        except Exception as error:  # Ray raises a plain one if the machine is too busy
            raise RuntimeError(
                f"Ray cannot start here ({_short(error)}): try again, or use --executor local"
            ) from error
        return
    try:
        ray.init(address=address, **quiet)
    except ConnectionError as error:
        raise ConnectionError(
            f"there is no Ray cluster at --address {address} ({error}): start one with `ray start --head`, or leave "
            "--address out to use this machine alone"
        ) from None


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[-LONGEST_REASON:]


def _device(device: str, room: dict[str, float]) -> str:
    """The device that each worker uses; Ray shows it only its own GPU."""
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda with --executor ray, got {device!r}: Ray chooses the GPU")
    if device == "auto":
        return "cuda" if room.get("GPU") else "cpu"
    if device == "cuda" and not room.get("GPU"):
        raise ValueError("device cuda needs a GPU, and the Ray cluster has none: use cpu or auto")
    return device


def _room(room: dict[str, float], cpus: float, gpus: float) -> int:
    """How many workers fit."""
    fits = [room.get("CPU", 0.0) / cpus] if cpus else []
    fits += [room.get("GPU", 0.0) / gpus] if gpus else []
    number = int(min(fits, default=0.0))
    if number < 1:
        raise ValueError(
            f"a worker needs {cpus:g} cores and {gpus:g} GPUs, the Ray cluster has {room.get('CPU', 0):g} and "
            f"{room.get('GPU', 0):g}: ask for less with --cpus and --gpus"
        )
    return number
