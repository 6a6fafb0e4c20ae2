"""JSON as records use it."""

import json
import math
from typing import Any

from mlrsnet.files.untrusted import parse_json


def dumps(value: Any, indent: int | None = None) -> str:
    """JSON that every reader accepts: a number that is not finite becomes null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def loads(text: str | bytes) -> Any:
    """What `dumps` wrote. Others may have written numbers that are not finite, which readers of records pass over."""
    return parse_json(text, finite=False)


def lines(text: str) -> list[Any]:
    """JSON of each line. A last line that was cut in the middle is left out: it was still being written."""
    *whole, rest = text.split("\n")
    found = [loads(line) for line in whole if line]
    try:
        return [*found, loads(rest)] if rest else found
    except ValueError:
        return found


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
