"""Data to train on: `load(name)` gives a task with disjoint parts to train on, to choose by and to report on."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from mlrsnet.lab.tasks import arrays, corrupted, digits, folder, sets, text
from mlrsnet.lab.tasks.folder import FolderTask
from mlrsnet.lab.tasks.images import ImageTask, Pictures
from mlrsnet.lab.tasks.options import FolderOptions, NoOptions, OwnOptions, PictureOptions, build
from mlrsnet.lab.tasks.text import TextTask

__all__ = [
    "KNOWN",
    "Entry",
    "FolderTask",
    "ImageTask",
    "Pictures",
    "Task",
    "TextTask",
    "check",
    "data_root",
    "find",
    "load",
]

Task = ImageTask | TextTask | FolderTask
KEPT = 4  # tasks kept in the process; CIFAR is 180 MB


@dataclass(frozen=True)
class Entry:
    """A task that can be loaded: what it is, how, and its options less those that its name fixes.

    find: says whether the data is there, where loading it takes long.
    """

    about: str
    load: Callable[[str, Path, Any], Task]
    options: type[Any] = PictureOptions
    fixed: dict[str, Any] = field(default_factory=dict)
    find: Callable[[str, Path, Any], object] | None = None


def _known() -> dict[str, Entry]:
    known = {"digits": Entry("handwritten digits, 8x8 grey, shipped with scikit-learn", digits.load)}
    known["digits"].fixed["fraction"] = 1.0  # its split is fixed
    for name, those in sets.SETS.items():
        known[name] = Entry(those.about, sets.load)
        if name.startswith("cifar"):
            known[f"{name}-half"] = Entry(f"half of {name}'s training pictures", sets.load, fixed={"fraction": 0.5})
            known[f"{name}-tenth"] = Entry(f"a tenth of {name}'s training pictures", sets.load, fixed={"fraction": 0.1})
    for name, published in corrupted.PUBLISHED.items():
        about = f"{published.folder}: trained on corrupted pictures, tested on clean ones (Section 4.4 of the paper)"
        known[f"{name}-c"] = Entry(about, corrupted.load, corrupted.CorruptedOptions, {"leaky": False}, corrupted.find)
    known["digits-c"] = Entry(
        "digits: trained on corrupted ones, tested on clean ones",
        corrupted.load_digits,
        corrupted.CorruptedOptions,
        {"leaky": False, "generate": True},
    )
    for name, about in {"ptb": "Penn Treebank, newspaper text", "wikitext2": "WikiText-2, articles"}.items():
        known[name] = Entry(f"{about}, by words", text.load_words, NoOptions)
        known[f"{name}-chars"] = Entry(f"{about}, by characters", text.load_characters, NoOptions)
    known["tinyshakespeare"] = Entry("plays, by characters", text.load_shakespeare, NoOptions)
    known["manual"] = Entry("the reference manual that comes with Python, by words", text.load_manual, NoOptions)
    known["imagenet"] = Entry("photographs of 1,000 kinds of things, streamed from a folder", folder.load)
    return known


KNOWN: dict[str, Entry] = _known()
OWN_FILE = Entry("a user's own pictures in an .npz file", arrays.load, OwnOptions)
OWN_FOLDER = Entry("a user's own pictures in a folder", folder.load, FolderOptions)


def load(name: str | os.PathLike[str], *, root: Path | None = None, **options: Any) -> Task:
    """A task by its name in `KNOWN`, or a path of one's own: an .npz file or a folder `train/<class>/*`, `test/`.

    Well-known sets are looked for in `root` (default: $MLRSNET_DATA, else ~/.cache/mlrsnet/data) and downloaded where
    torchvision has them. Pictures take the options of `PictureOptions`. The same arguments give the same object.

    >>> load("digits", classes=(3, 5)).sizes
    {'train': 248, 'val': 56, 'test': 61}
    """
    name = os.fspath(name)
    chosen = check(name, options)
    if name not in KNOWN:
        name = os.path.abspath(os.path.expanduser(name))  # what is kept must not be found from another folder
    return _load(name, data_root(root), chosen, _changed(name))


def find(name: str, *, root: Path | None = None, **options: Any) -> None:
    """Raise what `load` would if the data is not there, without the work of corrupting pictures."""
    entry = _entry(name)
    if entry.find is None:
        load(name, root=root, **options)
    else:
        entry.find(name, data_root(root), check(name, options))


def check(name: str, options: dict[str, Any]) -> Any:
    """The options of a task, complete; unknown names, options and values are refused before any data is read."""
    entry = _entry(name)
    return build(entry.options, name, options, entry.fixed)


def data_root(root: Path | None = None) -> Path:
    """Where well-known sets are looked for."""
    given = root or os.environ.get("MLRSNET_DATA") or Path("~/.cache/mlrsnet/data")
    return Path(given).expanduser().absolute()


@lru_cache(maxsize=KEPT)
def _load(name: str, root: Path, options: Any, changed: int) -> Task:
    return _entry(name).load(name, root, options)


def _entry(name: str) -> Entry:
    if name in KNOWN:
        return KNOWN[name]
    if name.endswith(".npz"):
        return OWN_FILE
    if Path(name).expanduser().is_dir():
        return OWN_FOLDER
    raise ValueError(
        f"the task must be one of {', '.join(KNOWN)}, a path that ends in .npz or a folder of pictures; got {name!r}"
    )


def _changed(name: str) -> int:
    """When a user's file was last written, so that a new version of it is read anew."""
    return os.stat(name).st_mtime_ns if name not in KNOWN and os.path.isfile(name) else 0
