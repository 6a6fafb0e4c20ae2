"""Where the runs of a campaign are made: here, in several processes, or on a Ray cluster."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from mlrsnet_lab import checks
from mlrsnet_lab.devices import resolve
from mlrsnet_lab.executors.crew import RETRIES, Counts, Crew, Workers
from mlrsnet_lab.executors.local import LocalWorkers
from mlrsnet_lab.executors.on_ray import RayWorkers

LOCAL, RAY = "local", "ray"
ONLY_RAY = ("address", "cpus", "gpus")


@dataclass(frozen=True)
class Executor:
    """How many runs are made at once, and where.

    Args:
        name: `local`, this machine, or `ray`, a cluster.
        jobs: runs at once. If None, one for each GPU of this machine, or one without a GPU; on a cluster, what there is room for.
        retries: how often a run is tried again after its process died.
        address: of the Ray cluster; `auto` for the one that this machine belongs to, None to start one on this machine.
        cpus, gpus: of each run on Ray, see `RayWorkers`.
    """

    name: str = LOCAL
    jobs: int | None = None
    retries: int = RETRIES
    address: str | None = None
    cpus: float | None = None
    gpus: float | None = None

    def __post_init__(self) -> None:
        checks.one_of("--executor", self.name, (LOCAL, RAY))
        if self.jobs is not None:
            checks.whole_number("--jobs", self.jobs)
        checks.whole_number("--retries", self.retries, 0)
        for option in ("cpus", "gpus"):
            if getattr(self, option) is not None:
                checks.not_negative(f"--{option}", getattr(self, option))
        for option in ONLY_RAY:
            if self.name != RAY and getattr(self, option) is not None:
                raise ValueError(f"--{option} belongs to --executor ray, got --executor {self.name}: leave one out")

    @contextmanager
    def crew(
        self, device: str = "auto", on_change: Callable[[Counts], object] = lambda counts: None
    ) -> Iterator[Crew | None]:
        """Processes, which end with the context; None where this process does the work itself, one piece after the other."""
        if self.name == LOCAL and len(devices := local_devices(device, self.jobs)) == 1:
            yield None
            return
        workers: Workers = self._cluster(device) if self.name == RAY else _processes(devices)
        try:
            yield Crew(workers, self.retries, on_change)
        finally:
            workers.close()

    def _cluster(self, device: str) -> Workers:
        return RayWorkers(device, self.address, self.jobs, 1 if self.cpus is None else self.cpus, self.gpus)


def _processes(devices: Sequence[str]) -> Workers:
    return LocalWorkers(devices, threads=max(1, (os.cpu_count() or 1) // len(devices)))


def local_devices(device: str, jobs: int | None) -> list[str]:
    """The device of every run that is made at once.

    >>> local_devices("cpu", 3)
    ['cpu', 'cpu', 'cpu']
    """
    place = resolve(device)
    count = torch.cuda.device_count() if place.type == "cuda" and device in ("auto", "cuda") else 1
    if count == 1:
        return [str(place)] * (jobs or 1)
    return [f"cuda:{number % count}" for number in range(jobs or count)]
