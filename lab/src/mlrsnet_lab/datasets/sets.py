"""Well-known datasets of pictures, and how each is augmented."""

from dataclasses import dataclass, replace
from pathlib import Path

from mlrsnet_lab.datasets import arrays, download, sources
from mlrsnet_lab.datasets.images import ImageDataset, Source, make
from mlrsnet_lab.datasets.options import PictureOptions


@dataclass(frozen=True)
class Set:
    """Padding is side // `crop`. `flip`: a mirrored picture keeps its class. The sizes are those of the full dataset."""

    about: str
    crop: int
    flip: bool
    num_train: int
    num_test: int


SETS = {
    "cifar10": Set("colour photographs of 10 kinds of things, 32x32", 8, True, 50_000, 10_000),
    "cifar100": Set("colour photographs of 100 kinds of things, 32x32", 8, True, 50_000, 10_000),
    "svhn": Set("house numbers, 10 digits in colour, 32x32", 8, False, 73_257, 26_032),
    "mnist": Set("handwritten digits, 28x28 grey", 14, False, 60_000, 10_000),
    "fashion_mnist": Set("10 kinds of clothes, 28x28 grey", 14, True, 60_000, 10_000),
    "tinyimagenet": Set("colour photographs of 200 kinds of things, 64x64", 8, True, 100_000, 10_000),
}


def load(name: str, root: Path, options: PictureOptions) -> ImageDataset:
    """A well-known dataset, from the cache or downloaded."""
    base = name.removesuffix("-half").removesuffix("-tenth")
    known = SETS[base]
    source = arrays.read(download.find(base, root), name)
    side = options.size or min(source.train.images.shape[1:3])
    made = make(source, options, side // known.crop, known.flip, note(source, known))
    return replace(made, digest=sources.of_pictures(source))


def note(source: Source, known: Set) -> str:
    """What a record says of a file whose sizes are not the published ones."""
    found = len(source.train.labels), len(source.test.labels)
    if found == (known.num_train, known.num_test):
        return ""
    return (
        f"not the full set: the file has {found[0]:,} training and {found[1]:,} test pictures, the set "
        f"{known.num_train:,} and {known.num_test:,}"
    )
