"""Work beside other work: a GPU stream and random numbers of its own, to leave and to enter again."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


class Aside:
    """The user's stream and random numbers are left alone, and other work may happen between one part and the next.

    >>> aside = Aside(torch.device("cpu"))
    >>> aside.begin(seed=0)
    >>> with aside.part():
    ...     first = torch.rand(2)
    >>> with aside.part():
    ...     second = torch.rand(2)
    >>> torch.equal(torch.cat((first, second)), torch.rand(4, generator=torch.Generator().manual_seed(0)))
    True
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.devices = [] if self.stream is None else [device]
        self.states: list[torch.Tensor] = []

    def begin(self, seed: int) -> None:
        """Random numbers begin at `seed`; what follows comes after whatever the user's stream was given so far."""
        with torch.random.fork_rng(devices=self.devices):
            torch.default_generator.manual_seed(seed)
            for device in self.devices:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            self._keep()
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))

    @contextmanager
    def part(self) -> Iterator[None]:
        """On the stream, the random numbers going on where the last part ended; an error leaves the user's stream waiting."""
        inside = nullcontext() if self.stream is None else torch.cuda.stream(self.stream)
        with torch.random.fork_rng(devices=self.devices):
            torch.set_rng_state(self.states[0])
            for device, state in zip(self.devices, self.states[1:], strict=True):
                torch.cuda.set_rng_state(state, device)
            try:
                with inside:
                    yield
            except BaseException:
                self.end()
                raise
            self._keep()

    def end(self) -> None:
        """The user's stream waits for all parts."""
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def _keep(self) -> None:
        self.states = [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self.devices)]
