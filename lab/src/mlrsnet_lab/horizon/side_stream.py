"""A CUDA stream and random numbers of its own, for work that runs beside the user's."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


class SideStream:
    """Runs work in parts, on a separate CUDA stream and with separate random numbers.

    The user's stream and random state are untouched, and other work may run between two parts. On the CPU only the random
    numbers are separate.

    >>> side = SideStream(torch.device("cpu"))
    >>> side.begin(seed=0)
    >>> with side.part():
    ...     first = torch.rand(2)
    >>> with side.part():
    ...     second = torch.rand(2)
    >>> torch.equal(torch.cat((first, second)), torch.rand(4, generator=torch.Generator().manual_seed(0)))
    True
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.cuda_devices = [] if self.stream is None else [device]
        self.random_states: list[torch.Tensor] = []

    def begin(self, seed: int) -> None:
        """Seed the random numbers, and wait for what is already queued on the user's stream."""
        with torch.random.fork_rng(devices=self.cuda_devices):
            torch.default_generator.manual_seed(seed)
            for device in self.cuda_devices:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            self._save_random_states()
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))

    @contextmanager
    def part(self) -> Iterator[None]:
        """One part of the work. Its random numbers continue where the last part stopped.

        After an error the user's stream waits for this one, as it does after `end`.
        """
        on_stream = nullcontext() if self.stream is None else torch.cuda.stream(self.stream)
        with torch.random.fork_rng(devices=self.cuda_devices):
            torch.set_rng_state(self.random_states[0])
            for device, state in zip(self.cuda_devices, self.random_states[1:], strict=True):
                torch.cuda.set_rng_state(state, device)
            try:
                with on_stream:
                    yield
            except BaseException:
                self.end()
                raise
            self._save_random_states()

    def end(self) -> None:
        """Make the user's stream wait for all parts."""
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def _save_random_states(self) -> None:
        cuda_states = (torch.cuda.get_rng_state(device) for device in self.cuda_devices)
        self.random_states = [torch.get_rng_state(), *cuda_states]
