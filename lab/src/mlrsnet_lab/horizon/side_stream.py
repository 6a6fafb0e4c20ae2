"""A CUDA stream and random numbers of its own, for work that must not disturb the user's."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def apart(device: torch.device, stream: torch.cuda.Stream | None, seed: int) -> Iterator[None]:
    """Work on this stream, if there is one, and with random numbers from this seed. The user's are untouched.

    >>> with apart(torch.device("cpu"), None, seed=0):
    ...     found = torch.rand(2)
    >>> torch.equal(found, torch.rand(2, generator=torch.Generator().manual_seed(0)))
    True
    """
    with torch.random.fork_rng(devices=[] if stream is None else [device]):
        torch.default_generator.manual_seed(seed)
        if stream is None:
            yield
            return
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
        users = torch.cuda.current_stream(device)
        stream.wait_stream(users)
        try:
            with torch.cuda.stream(stream):
                yield
        finally:
            users.wait_stream(stream)
