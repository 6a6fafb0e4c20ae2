"""Work for tests of executors, in a module so that other processes can import it."""

import os
import signal
import time
from pathlib import Path

from mlrsnet_lab.signals import PoliteStop


def square(place, number):
    place.tell(f"{number} on {place.device}")
    return number * number


def fail(place, reason):
    raise ValueError(reason)


def die(place, folder, times):
    """End as by the system's out-of-memory killer, the first few times."""
    tries = len(list(Path(folder).iterdir()))
    (Path(folder) / str(tries)).touch()
    if tries < times:
        os.kill(os.getpid(), signal.SIGKILL)
    return tries


def steps(place, folder):
    """A training without an end: tells after each step, stops at the end of one, and leaves a file."""
    with PoliteStop() as stop:
        step = 0
        while not stop.asked:
            step += 1
            place.tell(step)
            time.sleep(0.01)
    (Path(folder) / "stopped").write_text(str(step))
    raise KeyboardInterrupt


def wait_for_ever(place):
    place.tell("waiting")
    while True:
        time.sleep(0.1)
