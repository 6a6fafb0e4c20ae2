"""Stop on Ctrl-C and SIGTERM at the end of a step, not in the middle of one."""

import signal
import threading
from types import FrameType
from typing import Any


class PoliteStop:
    """Inside, the first signal only sets `asked`; a second Ctrl-C interrupts at once.

    Python allows handlers in the main thread only. In other threads signals act as usual.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.asked = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> "PoliteStop":
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, self._ask) for number in self.SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True
