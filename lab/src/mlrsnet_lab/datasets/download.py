"""Well-known datasets from torchvision, each kept as one .npz file."""

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from mlrsnet.files.writing import write_atomically
from mlrsnet_lab.datasets.arrays import NEEDED, RULE, Arrays
from mlrsnet_lab.datasets.extras import need

IN_TORCHVISION = {
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "svhn": "SVHN",
    "mnist": "MNIST",
    "fashion_mnist": "FashionMNIST",
}


def find(name: str, root: Path) -> Path:
    """The dataset's .npz below `root`, downloaded if it is missing; an error describes both ways to get it."""
    path = root / f"{name}.npz"
    if path.is_file():
        return path
    looked = f"{name} was not found: put {path} there, with {', '.join(NEEDED)} ({RULE})"
    if name not in IN_TORCHVISION:
        raise FileNotFoundError(f"{looked}; download it by hand, torchvision does not have it")
    try:
        arrays = fetch(name, root)
    except Exception as error:  # networks, servers and archives can fail in any way
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise FileNotFoundError(
            f"{looked}, or download it on a machine with torchvision (pip install 'mlrsnet-lab[vision]') and a network, "
            f"which failed here ({reason})"
        ) from None
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type] # numpy's stub mistakes the names for its own options
    write_atomically(path, file.getvalue())
    return path


def fetch(name: str, root: Path) -> Arrays:
    """Download to a temporary folder beside the cache, and return the arrays."""
    datasets = need("torchvision.datasets", f"downloading {name}", "vision")
    root.mkdir(parents=True, exist_ok=True)
    result: Arrays = {}
    with tempfile.TemporaryDirectory(dir=root, prefix=f".{name}.") as folder:
        for part in ("train", "test"):
            which = {"split": part} if name == "svhn" else {"train": part == "train"}
            dataset = getattr(datasets, IN_TORCHVISION[name])(folder, download=True, **which)
            result[f"x_{part}"] = _pixels(dataset, name)
            labels = dataset.labels if name == "svhn" else dataset.targets
            result[f"y_{part}"] = np.asarray(labels, dtype=np.int64)
    return result


def _pixels(dataset: Any, name: str) -> np.ndarray[Any, Any]:
    pixels = np.asarray(dataset.data, dtype=np.uint8)
    return pixels.transpose(0, 2, 3, 1) if name == "svhn" else pixels  # only SVHN has its channels first
