"""The records of this study, in results/trained."""

import json
from pathlib import Path
from typing import Any

from lab.studies.sweeps.records import rounded

FOLDER = Path(__file__).parents[3] / "results" / "trained"


def write(name: str, found: dict[str, Any]) -> Path:
    """Write a record, one row a line; returns the file."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{name}.json"
    file.write_text(json.dumps(rounded(found)).replace("}, {", "},\n{") + "\n")
    return file


def read(name: str) -> Any:
    """A record."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def has(name: str) -> bool:
    """Whether it was written."""
    return (FOLDER / f"{name}.json").is_file()
