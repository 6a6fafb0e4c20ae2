"""What each network of a meta-training says by itself to a loss of 5 (Fig. 6a), from the schedule files beside the runs.

    python -m experiments.figures.alone FOLDER

FOLDER has the runs of recipe `phases` with their schedule files, which results/ does not keep. Writes
results/phases_cpu/alone.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from experiments import results
from mlrsnet.files.writing import write_atomically
from mlrsnet_lab.recipes.rows import SOURCE
from mlrsnet_lab.report import read_report
from mlrsnet_lab.report.runs import ALONE_LOSS

RECORD, DIGITS = "phases_cpu/alone.json", 5


def curves(folder: Path) -> dict[str, list[list[float]]]:
    """LR / gamma by step of every network, by the row of the meta-training; of its first seed with a schedule file."""
    rows = [
        row
        for one in read_report(folder).sections
        for table in one.tables
        for row in table.rows
        if table.title == SOURCE
    ]
    found = {row.name: next((alone for run in row.drawn if (alone := run.alone())), []) for row in rows}
    return {name: [[round(float(y), DIGITS) for y in ys] for _, ys in networks] for name, networks in found.items()}


def networks() -> dict[str, list[list[float]]]:
    """As recorded; empty if they were not."""
    path = results.RESULTS / RECORD
    return dict(json.loads(path.read_text())["lr_over_gamma"]) if path.is_file() else {}


def write(folder: Path, out: Path) -> Path:
    """Compute them and keep them as a record."""
    found = curves(folder)
    if not any(found.values()):
        raise ValueError(f"{folder} must hold meta-trainings with their schedule files, got none: run recipe phases")
    record: dict[str, Any] = {"loss": ALONE_LOSS, **results.here(), "lr_over_gamma": found}
    write_atomically(out, (json.dumps(record) + "\n").encode())
    return out


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(prog="python -m experiments.figures.alone", description=__doc__)
    parser.add_argument("folder", type=Path, help="with the runs of recipe phases")
    print(write(parser.parse_args().folder, results.RESULTS / RECORD))


if __name__ == "__main__":
    main()
