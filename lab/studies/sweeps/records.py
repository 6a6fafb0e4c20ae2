"""The records of this study, all in results/sweeps/fits.json."""

import json
import math
from pathlib import Path
from typing import Any

from mlrsnet_lab.records import commit

FILE = Path(__file__).parents[3] / "results" / "sweeps" / "fits.json"


def write(name: str, found: dict[str, Any]) -> Path:
    """Write a record beside the others, one cell a line; returns the file."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(FILE.read_text()) if FILE.is_file() else {}
    kept[name] = {"commit": commit(), **rounded(found)}
    FILE.write_text(json.dumps(kept).replace("}, {", "},\n{") + "\n")
    return FILE


def read(name: str) -> Any:
    """A record."""
    return json.loads(FILE.read_text())[name]


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
