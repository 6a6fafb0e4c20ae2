"""What all pictures share."""

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

from experiments.results import ROOT
from mlrsnet_lab.records import Record

PICTURES = ROOT / "docs" / "pictures"
DPI, COLOURS = 150, 128


def new(rows: int, columns: int, size: tuple[float, float], **how: Any) -> tuple[Figure, Any]:
    """A figure and its panels."""
    matplotlib.use("Agg")
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, **how)


def save(figure: Figure, out: Path) -> None:
    """The same records give the same bytes."""
    figure.savefig(out, dpi=DPI, metadata={"Software": None})


def fewer_colours(path: Path) -> None:
    """A palette makes the file a third as large."""
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def plain(axes: Any) -> None:
    """No box, a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def lrs(run: Record) -> tuple[list[float], list[float]]:
    """Epochs and LRs."""
    return [step / run.data["steps_per_epoch"] for step in run.trace["step"]], run.trace["lr"]


def metrics(run: Record) -> tuple[list[float], list[float]]:
    """Epochs and test results."""
    lines = [line for line in run.epochs if line.get("test_metric") is not None]
    return [line["epoch"] for line in lines], [line["test_metric"] for line in lines]
