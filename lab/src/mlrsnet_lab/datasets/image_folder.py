"""Pictures in folders, one per class, read from disk while training."""

import math
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from mlrsnet.files.untrusted import open_regular, reason
from mlrsnet_lab import checks
from mlrsnet_lab.datasets import split
from mlrsnet_lab.datasets.extras import need
from mlrsnet_lab.datasets.options import PictureOptions

FORMATS = ("JPEG", "PNG", "PPM", "BMP", "WEBP", "TIFF", "GIF")
"""What a file may hold, whatever its name says. PIL knows others too, and would run Ghostscript for an EPS."""

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".webp", ".tif", ".tiff")
LONGEST = 16
"""A picture more elongated than 16 to 1 is cut, or its enlarged copy would not fit into memory."""

PARTS = ("train", "val", "test")
SIZE = 224
SHOWN = 0.875  # outside training, the middle 224 of 256 pixels
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # ImageNet's, per colour

Listed = Sequence[tuple[str, int]]


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """Lists of (path, label) to train, validate and test on; `batches` reads the pictures.

    Training uses a random part of each picture, flipped half of the time, unless `augment` is False. Evaluation uses its middle.

    mean, std: ImageNet's, in units of uint8.
    note: what a record should say about the data.
    """

    name: str
    num_classes: int
    classes: tuple[str, ...]
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    train: Listed
    val: Listed
    test: Listed
    augment: bool = True
    note: str = ""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a picture."""
        return 3, self.size, self.size

    @property
    def sizes(self) -> dict[str, int]:
        """The number of pictures in each part."""
        return {part: len(getattr(self, part)) for part in PARTS}

    def batches(
        self,
        part: str,
        batch_size: int,
        *,
        order: Tensor | None,
        seed: int,
        workers: int,
        whole_batches: bool = True,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Full batches of uint8 pictures (B, H, W, C) and labels, in this order of indices.

        `order=None` is the natural order, and its last batch may be short, as that of another order without `whole_batches`. How
        a training picture is cropped depends only on `seed` and its index, so an epoch can continue from any batch: pass the rest
        of its order.
        """
        listed = getattr(self, checks.one_of("part", part, PARTS))
        checks.whole_number("batch_size", batch_size)
        checks.whole_number("workers", workers, 0)
        checks.whole_number("seed", seed, 0)
        need("PIL.Image", "reading pictures from a folder")
        loader = DataLoader(
            _Reader(listed, self.size, seed if part == "train" and self.augment else None),
            batch_size,
            sampler=range(len(listed)) if order is None else _indices(order, len(listed)),
            num_workers=workers,
            collate_fn=_collate,
            worker_init_fn=_leave_group,
            pin_memory=torch.cuda.is_available(),
            drop_last=order is not None and whole_batches,
            generator=torch.Generator().manual_seed(0),  # the default would draw from the global generator
        )
        return _raised(loader)


def load(name: str, root: Path, options: PictureOptions) -> ImageFolder:
    """A user's folder, or ImageNet's: `train/<class>/*` and `test/` or `val/`.

    With both, `val` is for validation. With only one of them, it is the test data, and validation pictures are held out of the
    training pictures.
    """
    folder = root / "imagenet" if name == "imagenet" else Path(name)
    _check_layout(folder, name)
    parts = [part for part in PARTS if (folder / part).is_dir()]
    classes = _classes(folder, options)
    found = {part: _list(folder / part, classes) for part in parts}
    own_val = found.pop("val") if "test" in found and "val" in found else None
    if own_val is not None and options.about_val:
        raise ValueError(
            f"{options.about_val} must be left out for {folder}, which has its own validation pictures (val/)"
        )
    whole = found["train"]
    chosen = split.cut(torch.tensor([label for _, label in whole]), options, held_out=own_val is None)
    train, val = (tuple(whole[i] for i in part.tolist()) for part in (chosen.train, chosen.val))
    test = found["test"] if "test" in found else found["val"]
    size = options.size or SIZE
    return ImageFolder(
        folder.name,
        len(classes),
        classes,
        size,
        MEAN,
        STD,
        train,
        own_val or val,
        test,
        options.augment,
        split.note(options),
    )


def _check_layout(folder: Path, name: str) -> None:
    if not (folder / "train").is_dir() or not any((folder / part).is_dir() for part in ("test", "val")):
        by_hand = " (download ILSVRC2012 from image-net.org, which asks to register)" if name == "imagenet" else ""
        raise FileNotFoundError(
            f"{name} was not found in {folder}: put pictures there as train/<class>/* and test/<class>/* or "
            f"val/<class>/*{by_hand}"
        )


def _classes(folder: Path, options: PictureOptions) -> tuple[str, ...]:
    names = tuple(sorted(entry.name for entry in os.scandir(folder / "train") if _is_class(entry)))
    if len(names) < 2:
        raise ValueError(
            f"{folder / 'train'} must have at least two class folders, got {len(names)}: add one per class"
        )
    if options.classes is None:
        return names
    split.check_classes(options.classes, len(names))
    return tuple(names[number] for number in options.classes)


def _is_class(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() and not entry.name.startswith(".")


def _list(folder: Path, classes: tuple[str, ...]) -> Listed:
    """All pictures of the classes, sorted by class and path. Raises if a class has none."""
    known = {entry.name for entry in os.scandir(folder.parent / "train") if _is_class(entry)}
    strange = sorted({entry.name for entry in os.scandir(folder) if _is_class(entry)} - known)
    if strange:
        raise ValueError(
            f"{folder / strange[0]} must be a class of train/ too, got one that is not: rename or remove it"
        )
    result: list[tuple[str, int]] = []
    for label, name in enumerate(classes):
        paths = _pictures(folder / name)
        if not paths:
            raise ValueError(
                f"{folder / name} must have pictures ({', '.join(ENDINGS)}), got none: add some or remove it"
            )
        result += [(path, label) for path in paths]
    return tuple(result)


def _pictures(folder: Path) -> list[str]:
    found = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if not name.startswith("."))
    return sorted(path for path in found if path.lower().endswith(ENDINGS))


def _indices(order: Tensor, count: int) -> list[int]:
    if order.ndim != 1 or order.is_floating_point() or (len(order) and not 0 <= order.min() <= order.max() < count):
        raise ValueError(
            f"order must be a 1-D tensor of indices from 0 to {count - 1}, got {order!r}: use torch.randperm"
        )
    return order.tolist()


class _Reader(Dataset[Any]):
    """Reads one picture per index. A picture that cannot be read gives an error message, which `_raised` raises.

    Raised in a worker process, the message would be wrapped in a long traceback.
    """

    def __init__(self, listed: Listed, size: int, seed: int | None) -> None:
        self.listed, self.size, self.seed = listed, size, seed

    def __getitem__(self, index: int) -> tuple[Tensor, int] | str:
        path, label = self.listed[index]
        try:
            image = read_picture(path)
        except ValueError as error:
            return str(error)
        if self.seed is None:
            image = _middle(image, self.size)
        else:
            image = _random_part(image, self.size, np.random.default_rng((self.seed, index)))
        return torch.from_numpy(np.array(image)), label


def read_picture(path: str) -> Any:
    """A picture in colours, which anyone may have made, or one ValueError.

    One of more pixels than PIL's `MAX_IMAGE_PIXELS` (89 million) is refused before it is decoded.
    """
    from PIL import Image

    try:
        with open_regular(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about harmless faults of a file; too many pixels are none
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=FORMATS) as picture:
                return picture.convert("RGB")
    except Exception as error:  # a file that is not a picture can fail in any way
        raise ValueError(f"{path} cannot be read as a picture ({reason(error)}): replace or remove it") from None


def _middle(image: Any, size: int) -> Any:
    image = _without_ends(image)
    scale = size / SHOWN / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    return image.resize((width, height), _BILINEAR).crop((left, top, left + size, top + size))


def _without_ends(image: Any) -> Any:
    """The middle of a very elongated picture; others as they are."""
    width, height = (min(side, LONGEST * min(image.size)) for side in image.size)
    if (width, height) == image.size:
        return image
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def _random_part(image: Any, size: int, random: np.random.Generator) -> Any:
    """8% to 100% of the area, with an aspect ratio of 3/4 to 4/3, mirrored half of the time."""
    left, top, width, height = _box(image.width, image.height, random)
    image = image.crop((left, top, left + width, top + height)).resize((size, size), _BILINEAR)
    return image.transpose(_MIRRORED) if random.random() < 0.5 else image


def _box(width: int, height: int, random: np.random.Generator) -> tuple[int, int, int, int]:
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(random.integers(width - w + 1)), int(random.integers(height - h + 1)), w, h
    w, h = min(width, max(1, height * 4 // 3)), min(height, max(1, width * 4 // 3))  # very elongated: its middle
    return (width - w) // 2, (height - h) // 2, w, h


def _leave_group(worker: int) -> None:
    """Leave the training's process group: Ctrl-C, or torchrun's SIGTERM to the group, is for the training alone."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)


def _collate(items: list[Any]) -> Any:
    errors = [item for item in items if isinstance(item, str)]
    if errors:
        return errors[0]
    images, labels = zip(*items, strict=True)
    return torch.stack(images), torch.tensor(labels)


def _raised(loader: DataLoader[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    for batch in loader:
        if isinstance(batch, str):
            raise ValueError(batch)
        images, labels = batch
        yield images, labels


_BILINEAR, _MIRRORED = 2, 0  # PIL.Image.Resampling.BILINEAR and Transpose.FLIP_LEFT_RIGHT, without importing it here
