"""The examples of all rows, as small files in one folder: pictures, characters and tables of numbers."""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lab.studies.law import r_tables
from mlrsnet_lab import datasets, universal

PICTURES = {
    "digits": "digits",
    "mnist": "mnist-14",
    "fashion": "fashion-14",
    "cifar": "cifar10-16",
    "small cifar": "cifar10-8",
}
TEXTS = {"shakespeare": "tinyshakespeare/input.txt", "wikipedia": "wikitext2/train.txt"}
LARGE = "large "
"""More of the same data, for larger networks."""

SYMBOLS = 96
"""Printable ASCII, and one for all others: both texts have the same."""

MOST = {"picture": 12_000, "text": 800_000}
MOST_LARGE = {"picture": 30_000, "text": 5_000_000}
HELD_OUT = 2000


def prepare(folder: Path, root: Path | None = None) -> None:
    """Write the files, from the lab's data in `root`."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = {source.name: source for source in universal.TRAINING}
    pictures = [(name, known, MOST) for name, known in PICTURES.items()]
    for name, known, most in (*pictures, (f"{LARGE}cifar", PICTURES["cifar"], MOST_LARGE)):
        found = universal.load(sources[known], root)
        x = (found.inputs[: most["picture"]] * 32).round().clamp(-127, 127).to(torch.int8).numpy()
        y = found.targets[: most["picture"]].numpy().astype(np.int16)
        np.savez_compressed(folder / f"{name}.npz", x=x, y=y)
    texts = [(name, known, MOST) for name, known in TEXTS.items()]
    for name, known, most in (*texts, (f"{LARGE}wikipedia", TEXTS["wikipedia"], MOST_LARGE)):
        text = np.frombuffer((datasets.data_root(root) / known).read_bytes()[: most["text"]], np.uint8).astype(int) - 31
        np.savez_compressed(folder / f"{name}.npz", x=np.where((text > 0) & (text < SYMBOLS), text, 0).astype(np.uint8))
    for name in r_tables.TABLES:
        table = r_tables.load(name, datasets.data_root(root))
        y = table.targets.numpy()
        np.savez_compressed(
            folder / f"table {name}.npz", x=table.inputs.flatten(1).numpy(), y=y, classes=table.num_classes
        )


@cache
def pictures(folder: Path, name: str) -> tuple[Tensor, Tensor]:
    """Pictures of mean about 0 and deviation about 1, and their classes; the same order for everybody."""
    kept = np.load(folder / f"{name}.npz")
    return torch.from_numpy(kept["x"]).float() / 32, torch.from_numpy(kept["y"]).long()


@cache
def text(folder: Path, name: str) -> tuple[Tensor, int]:
    """Characters as numbers, and how many different ones there are."""
    return torch.from_numpy(np.load(folder / f"{name}.npz")["x"]).long(), SYMBOLS


@cache
def table(folder: Path, name: str) -> tuple[Tensor, Tensor, int]:
    """Rows of numbers, what to predict, and the number of classes (1: a number)."""
    kept = np.load(folder / f"table {name}.npz")
    x, y, classes = torch.from_numpy(kept["x"]).float(), torch.from_numpy(kept["y"]), int(kept["classes"])
    return x, (y.long() if classes > 1 else y.float()), classes


def tables(folder: Path) -> list[str]:
    """The names of all tables."""
    return sorted(path.stem.removeprefix("table ") for path in folder.glob("table *.npz"))
