"""The processes of one training. torchrun starts them, and each works on its share of every batch.

The loop, the feeds and the evaluation ask a `Processes`. For one that is alone, the answers cost nothing.
"""

import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from mlrsnet.ranks import Group, share_from_first, sum_over_ranks

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among those that train together.

    Args:
        rank: its number, from 0. The first one writes, prints and keeps the lock.
        count: how many there are.
        on_machine: how many of them share its machine.
    """

    rank: int = 0
    count: int = 1
    on_machine: int = 1

    @property
    def is_first(self) -> bool:
        """Whether it is the one that writes."""
        return self.rank == 0

    @property
    def group(self) -> Group:
        """For `LearnedLR` and `MetaTrainer`."""
        return None if self.count > 1 else False

    def check_batch(self, batch_size: int) -> None:
        """Refuse a batch that cannot be shared equally: the mean over processes would not be the mean over the batch."""
        if batch_size % self.count:
            near = max(1, round(batch_size / self.count)) * self.count
            raise ValueError(
                f"batch_size must be a multiple of the number of processes, {self.count}, got {batch_size}: it is the batch of all "
                f"processes together; pass {near}, or start another number of processes"
            )

    def share(self, batch_size: int) -> slice:
        """Which examples of a batch are this process's."""
        size = batch_size // self.count
        return slice(self.rank * size, (self.rank + 1) * size)

    @property
    def every(self) -> slice:
        """Which of any number of examples are this process's: all processes together have each once."""
        return slice(self.rank, None, self.count)

    def total(self, numbers: Tensor) -> Tensor:
        """The sum over the processes, in float64."""
        return sum_over_ranks(numbers, self.group)

    def mean(self, number: Tensor) -> Tensor:
        """The mean over the processes, in the number's own type."""
        return number if self.count == 1 else (self.total(number) / self.count).to(number.dtype)

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """For each flag, whether it is set in any process: what all of them can act on in the same step."""
        if self.count == 1:
            return flags
        return tuple(number > 0 for number in self.total(torch.tensor(flags, dtype=torch.float64)).tolist())

    def gather(self, own: Any) -> list[Any]:
        """What every process has, in the first one; an empty list in the others."""
        found: list[Any] = [own] * self.count if self.is_first else []
        if self.count > 1:
            dist.gather_object(own, found if self.is_first else None)
        return found

    def copy_first(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors with those of the first process."""
        for tensor in tensors:
            share_from_first(tensor, self.group)

    def wait(self) -> None:
        """Go on when all processes have come this far."""
        self.any(False)

    def first_alone(self, call: Callable[[], T]) -> T:
        """Call in the first process, then in the others: what it downloads or makes, they find."""
        if not self.is_first:
            self.wait()
            return call()
        try:
            return call()
        finally:
            self.wait()

    def check_same(self, what: str, number: int) -> None:
        """Refuse to go on if the processes do not have the same number."""
        if self.count == 1:
            return
        everyone = torch.zeros(self.count, dtype=torch.float64)
        everyone[self.rank] = number
        found = [int(number) for number in self.total(everyone).tolist()]
        if len(set(found)) > 1:
            raise ValueError(
                f"{what} must be the same in all processes, got {found}: give them a folder that all machines see"
            )


ALONE = Processes()


def current() -> Processes:
    """The processes of `torch.distributed`'s default group; alone without one."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return ALONE
    return Processes(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_WORLD_SIZE", 1)))


def launched() -> Processes:
    """What torchrun says of this process, before it has joined the others."""
    if not dist.is_available() or not dist.is_torchelastic_launched():
        return ALONE
    return Processes(*(int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")))


@contextmanager
def joined(device: str = "auto") -> Iterator[Processes]:
    """Inside, the processes that torchrun started train together: over NCCL on GPUs, over gloo on CPUs.

    Does nothing in a process that torchrun did not start, or that has joined already.
    """
    started = launched()
    if started.count == 1 or dist.is_initialized():
        yield current()
        return
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if on_gpu:
        torch.cuda.set_device(_own_gpu(device, started))
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    dist.init_process_group(backend, store=_meet(started), rank=started.rank, world_size=started.count)
    yield current()
    dist.destroy_process_group()  # not after an error: it would wait for processes that are gone


def _meet(started: Processes) -> dist.Store:
    """A store that only the processes of this attempt share.

    torchrun keeps one store for all its restarts, where a new process would find the addresses of dead ones. So the first process
    draws a name, and tells it to whoever asks under a name of its own.
    """
    (store, *_), own = next(rendezvous("env://", started.rank, started.count)), uuid.uuid4().hex
    if not started.is_first:
        store.set(f"asks/{started.rank}", own)
        name = store.get(f"answer/{own}").decode()
        store.set(f"{name}/{started.rank} has come", "")
        return dist.PrefixStore(name, store)
    for rank in range(1, started.count):
        while not store.check([f"{own}/{rank} has come"]):
            if store.check([f"asks/{rank}"]):  # perhaps a dead one; the living one overwrites it
                store.set(f"answer/{store.get(f'asks/{rank}').decode()}", own)
            time.sleep(0.02)
    return dist.PrefixStore(own, store)


def _own_gpu(device: str, started: Processes) -> int:
    if ":" in device:
        raise ValueError(
            f"device must be auto, cpu or cuda for {started.count} processes, got {device!r}: each has its own GPU"
        )
    number, found = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if number >= found:
        raise ValueError(
            f"--nproc-per-node must be at most the number of GPUs, {found}, got {started.on_machine}: start fewer, or pass "
            "--device cpu"
        )
    return number


def in_parallel(model: nn.Module, device: torch.device, some_loss: Callable[[nn.Module], Tensor]) -> nn.Module:
    """Wrap a model that all processes have. Batch norms use each process's own share; the first process's averages count.

    `some_loss` runs the model on any batch. DDP sorts gradients by the order of its first backward pass, and sums of more than two
    numbers round by their place. So that a resumed training rounds as one that never stopped, that pass is made here, and undone.
    """
    parallel = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    before = [buffer.clone() for buffer in model.buffers()]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Grad strides do not match"
        )  # pictures are in channels_last, on a CPU the model is not
        some_loss(parallel).backward()
    for buffer, value in zip(model.buffers(), before, strict=True):
        buffer.copy_(value)
    for parameter in model.parameters():
        parameter.grad = None
    return parallel
