"""A curve in one line of text."""

import sys
from collections.abc import Sequence

import numpy as np

BLOCKS, PLAIN = "▁▂▃▄▅▆▇█", "_.-=+*%#"


def sparkline(values: Sequence[float] | np.ndarray, width: int = 24, marks: str = BLOCKS) -> str:
    """The values from 0 to their maximum, averaged in `width` parts, as blocks of eight heights.

    >>> sparkline([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), sparkline([0.0, 2.0], marks=PLAIN), sparkline([])
    ('▁▂▃▄▅▆▇█', '_#', '')
    """
    parts = np.array_split(np.asarray(values, dtype=float), max(1, min(width, len(values))))
    means = np.array([part.mean() for part in parts if len(part)])
    if not len(means):
        return ""
    heights = means / max(means.max(), np.finfo(float).tiny) * (len(marks) - 1)
    return "".join(marks[round(float(height))] for height in heights)


def marks_of_terminal() -> str:
    """Blocks, or plain characters where standard output cannot show them."""
    try:
        BLOCKS.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN
    return BLOCKS
