"""A command in several processes at once: `torchrun -m mlrsnet train ...`."""

import io
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout

from mlrsnet.lab.processes import joined, launched


@contextmanager
def together(device: str) -> Iterator[None]:
    """Inside, the processes that torchrun started train together. Only the first one prints and warns."""
    with joined(device) as processes, ExitStack() as stack:
        if not processes.is_first:
            stack.enter_context(redirect_stdout(io.StringIO()))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        yield


def refuse_several(command: str) -> None:
    """Raise under torchrun: its processes would all do the same work, in the same folder."""
    count = launched().count
    if count > 1:
        raise ValueError(f"mlrsnet {command} must be one process, got {count} from torchrun: start it without torchrun")


def who() -> str:
    """` (rank 1 of 4)` for a process that is not the first; else nothing."""
    started = launched()
    return "" if started.is_first else f" (rank {started.rank} of {started.count})"
