"""CIFAR-10-C and CIFAR-100-C as the paper uses them (Section 4.4): train on corrupted pictures, test on clean ones.

The corrupted pictures are copies of CIFAR's test pictures, so the test is on CIFAR's training set. The clean pictures to validate
on, 10 per class, come from it too and are left out of the test.
"""

import io
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mlrsnet.files.untrusted import reason
from mlrsnet.files.writing import write_atomically
from mlrsnet_lab import checks
from mlrsnet_lab.datasets import arrays, corruptions, digits, download, sets, split
from mlrsnet_lab.datasets.corruptions import CORRUPTIONS, PUBLISHED_ONLY, SEVERITIES, Array
from mlrsnet_lab.datasets.images import ImageDataset, Pictures, Source, make
from mlrsnet_lab.datasets.options import PictureOptions, yes_or_no
from mlrsnet_lab.files.archives import load_array

VAL_PER_CLASS = 10
SEED = 0
"""Of generated pictures, which are the same in every run."""


@dataclass(frozen=True)
class Published:
    """The folder of a dataset's corrupted pictures, and where to download them."""

    folder: str
    address: str


PUBLISHED = {
    "cifar10": Published("CIFAR-10-C", "zenodo.org/records/2535967"),
    "cifar100": Published("CIFAR-100-C", "zenodo.org/records/3555552"),
}


@dataclass(frozen=True)
class CorruptedOptions(PictureOptions):
    """Options of corrupted pictures. `val_size` clean ones are held out of the test pictures, 10 per class by default.

    Args:
        corruption: one of the 15 of `CORRUPTIONS`; the paper trains one network on each.
        severity: 1 to 5; all five if None, as in the paper.
        generate: make the pictures from CIFAR's test pictures if the published file is missing; not for `frost`.
    """

    corruption: str = "gaussian_noise"
    severity: int | None = None
    generate: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("corruption", self.corruption, CORRUPTIONS)
        if self.severity is not None:
            object.__setattr__(self, "severity", corruptions.check_severity(self.severity))
        yes_or_no("generate", self.generate)


def load(name: str, root: Path, options: CorruptedOptions) -> ImageDataset:
    """Corrupted test pictures to train on; disjoint clean training pictures to validate and test on."""
    base, files = name.removesuffix("-c"), find(name, root, options)
    clean = arrays.read(download.find(base, root), base)
    if files is None:
        train = _generate(clean.test, options, kept=root / f"{PUBLISHED[base].folder}-generated")
    else:
        train = _read(*files, clean.num_classes, options)
    note = "; ".join(filter(None, (_note(base, options, generated=files is None), sets.note(clean, sets.SETS[base]))))
    return _task(name, clean, train, options, note)


def find(name: str, root: Path, options: CorruptedOptions) -> tuple[Path, Path] | None:
    """The published files, or None if the pictures can be generated; else raise FileNotFoundError."""
    base = name.removesuffix("-c")
    folder = root / PUBLISHED[base].folder
    files = folder / f"{options.corruption}.npy", folder / "labels.npy"
    missing = [path.name for path in files if not path.is_file()]
    if missing and not (options.generate and options.corruption != PUBLISHED_ONLY):
        raise FileNotFoundError(_not_found(name, base, files, missing, options))
    download.find(base, root)
    return None if missing else files


def load_digits(name: str, root: Path, options: CorruptedOptions) -> ImageDataset:
    """The same for digits, enlarged and in colour. Always generated, never downloaded."""
    clean = digits.colour(corruptions.SIDE)
    return _task(name, clean, _generate(clean.test, options), options, _note("digits", options, generated=True))


def _task(name: str, clean: Source, train: Pictures, options: CorruptedOptions, note: str) -> ImageDataset:
    val, test = _hold_out(clean, options)
    source = Source(name, clean.num_classes, train, clean.train[test], clean.train[val])
    known, side = sets.SETS.get(clean.name), options.size or corruptions.SIDE
    return make(source, options, side // known.crop if known else 0, known is not None and known.flip, note)


def _note(base: str, options: CorruptedOptions, generated: bool) -> str:
    """What a record should say: it is easy to overlook that the parts swap roles."""
    how = f"severity {options.severity}" if options.severity else f"severities 1 to {SEVERITIES}"
    origin = ", generated, not the published file" if generated else ""
    return (
        f"trained on {base}'s test pictures with {options.corruption} at {how}{origin}; validated and tested on clean "
        f"training pictures of {base}"
    )


def _not_found(name: str, base: str, files: tuple[Path, Path], missing: list[str], options: CorruptedOptions) -> str:
    by_hand = (
        f"{name} was not found: put {' and '.join(path.name for path in files)} of {PUBLISHED[base].address} into "
        f"{files[0].parent} (missing: {', '.join(missing)}); download it by hand, torchvision does not have it"
    )
    if options.corruption == PUBLISHED_ONLY:
        return f"{by_hand}; frost cannot be generated, because it needs photographs"
    return f"{by_hand}; or pass generate=True to make the pictures from {base}'s test pictures"


def _severities(options: CorruptedOptions) -> list[int]:
    return [options.severity] if options.severity else list(range(1, SEVERITIES + 1))


def _generate(clean: Pictures, options: CorruptedOptions, kept: Path | None = None) -> Pictures:
    """Corrupt the pictures, or read what an earlier call saved in `kept`, under a checksum of the clean pictures."""
    name, images = options.corruption, clean.images.numpy()
    blocks = []
    for severity in _severities(options):
        path = kept and kept / f"{name}-{severity}-{zlib.crc32(images.tobytes()):08x}.npy"
        if path is not None and path.is_file():
            blocks.append(torch.from_numpy(_open(path)))
            continue
        made = corruptions.corrupt(images, name, severity, seed=SEED)
        if path is not None:
            file = io.BytesIO()
            np.save(file, made)
            write_atomically(path, file.getvalue())
        blocks.append(torch.from_numpy(made))
    return Pictures(torch.cat(blocks), clean.labels.repeat(len(blocks)))


def _read(path: Path, labels_path: Path, num_classes: int, options: CorruptedOptions) -> Pictures:
    """Read the published files: all test pictures at severity 1, then at severity 2, and so on, with labels for all."""
    pixels, labels = _open(path), _open(labels_path)
    side = corruptions.SIDE
    if pixels.dtype != np.uint8 or pixels.shape[1:] != (side, side, 3) or len(pixels) % SEVERITIES or not len(pixels):
        raise ValueError(
            f"{path} must be uint8 of shape ({SEVERITIES} N, {side}, {side}, 3), got {pixels.dtype} {pixels.shape}: "
            "download it again"
        )
    if labels.dtype.kind not in "ui" or labels.shape != (len(pixels),):
        raise ValueError(
            f"{labels_path} must have one whole number for each of the {len(pixels):,} pictures of {path.name}, got "
            f"{labels.dtype} {labels.shape}: download it again"
        )
    rows = labels.reshape(SEVERITIES, -1)
    if (rows != rows[0]).any() or not 0 <= labels.min() <= labels.max() < num_classes:
        raise ValueError(
            f"{labels_path} must hold the same labels, 0 to {num_classes - 1}, for each of the {SEVERITIES} severities, "
            f"got others: is it the labels.npy beside {path.name}?"
        )
    blocks = pixels.reshape(SEVERITIES, -1, side, side, 3)
    which = [severity - 1 for severity in _severities(options)]
    images = torch.from_numpy(np.concatenate([blocks[i] for i in which]))
    return Pictures(images, torch.from_numpy(rows[which].astype(np.int64)).flatten())


def _open(path: Path) -> Array:
    try:
        return load_array(path)
    except Exception as error:  # a file that is not an .npy can fail in any way
        raise ValueError(f"{path} is damaged or not an .npy file ({reason(error)}): download it again") from None


def _hold_out(clean: Source, options: CorruptedOptions) -> tuple[Tensor, Tensor]:
    """Indices of the clean pictures of the chosen classes to validate on and to test on."""
    chosen = split.number(clean.train.labels, options.classes, clean.num_classes) >= 0
    indices = chosen.nonzero().flatten()
    ordered = indices[split.order(clean.train.labels[indices])]
    size = options.val_size or VAL_PER_CLASS * len(options.classes or range(clean.num_classes))
    if size >= len(ordered):
        raise ValueError(
            f"val_size must be less than {len(ordered):,}, the number of clean pictures, got {size:,}: "
            "pass a smaller one"
        )
    return ordered[:size], ordered[size:]
