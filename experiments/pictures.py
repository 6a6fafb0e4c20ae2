"""The pictures of docs/pictures that are drawn from records."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments import (
    algorithm_1,
    evidence,
    full_horizon,
    paper_tables,
    resnet18_grid,
    results,
    transfers,
    width_of_minima,
)
from experiments.drawing import PICTURES, fewer_colours
from experiments.figures.paper import FIGURES
from lab.studies.sweeps import pictures as sweeps
from mlrsnet_lab import report

DRAW: dict[str, Callable[[Path], None]] = {
    "proof.png": evidence.draw,
    "lr_curves.png": resnet18_grid.draw,
    "universal_lstm.png": full_horizon.draw_lrs,
    "universal_lstm_map.png": full_horizon.draw_map,
    "algorithm_1.png": algorithm_1.draw,
    "table1.png": paper_tables.draw_table1,
    "transfers.png": transfers.draw,
    "lstm_or_mlp.png": paper_tables.draw_networks,
    "width.png": width_of_minima.draw,
    **sweeps.DRAW,
    **{f"{name}.png": one.draw for name, one in FIGURES.items() if one.recorded},
}
"""Of the paper's figures, those with any record."""


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


FOLDER, WIDTH, HEIGHT = "table1_smoke", 1100, 1522


def draw_report(out: Path) -> None:
    """The top of the page."""
    browser = shutil.which("chromium")
    if browser is None:
        raise FileNotFoundError(
            "the picture of a report needs chromium, which is not installed: apt-get install chromium"
        )
    with TemporaryDirectory() as folder:
        page, _ = report.save_report(results.report(FOLDER), Path(folder))
        how = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},{HEIGHT}"]
        command = [browser, *how, f"--screenshot={out.resolve()}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    fewer_colours(out)


def write_report() -> list[Path]:
    """Take it anew; browsers differ, so this is not part of `all`."""
    draw_report(PICTURES / "report.png")
    return [PICTURES / "report.png"]
