"""A command in several processes at once: `torchrun -m mlrsnet train ...`."""

import io
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout

from mlrsnet_lab.processes import joined


@contextmanager
def together(device: str) -> Iterator[None]:
    """Inside, the processes that torchrun started train together. Only the first one prints and warns."""
    with joined(device) as processes, ExitStack() as stack:
        if not processes.is_first:
            stack.enter_context(redirect_stdout(io.StringIO()))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        yield
