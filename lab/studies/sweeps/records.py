"""The records of this study: results/sweeps/*.json."""

import json
import math
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "results" / "sweeps"


def write(name: str, found: dict[str, Any]) -> Path:
    """Write a record, one cell a line; returns its path."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(rounded(found)).replace("}, {", "},\n{") + "\n")
    return path


def read(name: str) -> Any:
    """A record."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def rounded(value: Any) -> Any:
    """Five digits are enough; NaN has no place in JSON.

    >>> rounded({"r": [0.123456789, math.nan]})
    {'r': [0.12346, None]}
    """
    if isinstance(value, dict):
        return {str(key): rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value
