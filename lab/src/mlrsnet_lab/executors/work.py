"""A piece of work for some process, and what is heard of it."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """What a piece of work learns about the process it runs in.

    device: where to compute.
    tell: sends anything that can be pickled to the process that gave the work.
    """

    device: str
    tell: Callable[[Any], None]


@dataclass(frozen=True)
class Work:
    """`function(place, *arguments)`, in whichever process is free.

    Args:
        name: for people, and different from every other name.
        function: of a module, so that another process can import it. A process may die at any moment and another one will then call
            it again, so it must continue or repeat what it has begun.
        arguments: can be pickled. Paths must be absolute: another process may have another folder.
        polite: it ends by itself when asked to stop. Other work is broken off.
        again: errors after which it is tried again, as after the death of its process.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    polite: bool = False
    again: tuple[type[Exception], ...] = ()


@dataclass(frozen=True)
class Begun:
    """The work has begun; `worker` names the process."""

    worker: str


@dataclass(frozen=True)
class News:
    """The work told something."""

    event: Any


@dataclass(frozen=True)
class Returned:
    """The work is done."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """The work failed on its own."""

    error: Exception


@dataclass(frozen=True)
class Stopped:
    """The work stopped because it was asked to."""


@dataclass(frozen=True)
class Died:
    """The process died."""

    reason: str


Message = Begun | News | Returned | Raised | Stopped | Died
Answer = Returned | Raised | Stopped


def answer(function: Callable[..., Any], arguments: tuple[Any, ...], place: Place) -> Answer:
    """Do the work, in the process it was given to."""
    try:
        return Returned(function(place, *arguments))
    except KeyboardInterrupt:
        return Stopped()
    except Exception as error:
        return Raised(portable(error))


def portable(error: Exception) -> Exception:
    """The error, or a RuntimeError that says the same, if it cannot travel between processes.

    >>> portable(ValueError("no"))
    ValueError('no')
    """
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever an error holds
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error.with_traceback(None)
