"""The pictures of docs/pictures that are drawn from records."""

from collections.abc import Callable
from pathlib import Path

from experiments import (
    lstm_or_mlp,
    pace_of_algorithm_1,
    proof,
    resnet18_grid,
    table1,
    transfers,
    universal_lstm_on_eight_tasks,
    what_schedules_read,
    width_of_minima,
)
from experiments.drawing import fewer_colours
from experiments.results import ROOT
from lab.studies.sweeps import pictures as sweeps

PICTURES = ROOT / "docs" / "pictures"
DRAW: dict[str, Callable[[Path], None]] = {
    "proof.png": proof.draw,
    "lr_curves.png": resnet18_grid.draw,
    "universal_lstm.png": universal_lstm_on_eight_tasks.draw,
    "universal_lstm_map.png": what_schedules_read.draw,
    "algorithm_1.png": pace_of_algorithm_1.draw,
    "table1.png": table1.draw,
    "transfers.png": transfers.draw,
    "lstm_or_mlp.png": lstm_or_mlp.draw,
    "width.png": width_of_minima.draw,
    **sweeps.DRAW,
}


def write() -> list[Path]:
    """Draw them all; returns those that changed."""
    changed = []
    for name, draw in DRAW.items():
        path = PICTURES / name
        before = path.read_bytes() if path.is_file() else None
        draw(path)
        fewer_colours(path)
        changed += [path] if path.read_bytes() != before else []
    return changed
