"""Pictures in an .npz file, read without running code from it, and checked."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from mlrsnet.files.untrusted import one_line, reason
from mlrsnet_lab.datasets.images import ImageDataset, Pictures, Source, make
from mlrsnet_lab.datasets.options import OwnOptions
from mlrsnet_lab.files.archives import array_names, load_arrays

NEEDED = ("x_train", "y_train", "x_test", "y_test")
OPTIONAL = ("x_val", "y_val")
MOST_CHANNELS = 4
BYTES, UNIT_FLOATS = "0 to 255", "0 to 1"
RULE = "pictures N x H x W x C, uint8 or numbers from 0 to 255, or floats from 0 to 1; labels from 0"
"""What an .npz file must hold."""

Arrays = dict[str, np.ndarray[Any, Any]]


def load(name: str, root: Path, options: OwnOptions) -> ImageDataset:
    """A user's own file. If it has x_val and y_val, these are the validation pictures."""
    path = Path(name)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check the path; the file must hold {', '.join(NEEDED)}")
    source = read(path, path.stem)
    if source.val is not None and options.about_val:
        raise ValueError(
            f"{options.about_val} must be left out for {path}, which has its own validation pictures (x_val, y_val)"
        )
    return make(source, options, options.pad, options.flip)


def read(path: Path, name: str) -> Source:
    """Read and check a file: uint8 or floats, channels last or none, labels from 0, no class missing."""
    arrays = _open(path)
    _check_names(path, arrays)
    parts = ["train", "test", *(["val"] if "x_val" in arrays else [])]
    scale = _scale(path, arrays, parts)
    pictures = {part: _pictures(path, arrays, part, scale) for part in parts}
    _check_shapes(path, pictures)
    return Source(name, _count_classes(path, pictures), pictures["train"], pictures["test"], pictures.get("val"))


def _open(path: Path) -> Arrays:
    try:
        return load_arrays(path, NEEDED + OPTIONAL)
    except Exception as error:  # a file that is not an .npz can fail in any way
        if "allow_pickle" in str(error):
            raise ValueError(
                f"{path} holds Python objects, or is a pickle or not an .npz file. It was not read, because that could run "
                "code: save plain arrays of numbers with numpy.savez"
            ) from None
        raise ValueError(
            f"{path} is damaged or not an .npz file ({reason(error)}): write it again with numpy.savez"
        ) from None


def _check_names(path: Path, arrays: Arrays) -> None:
    needed = NEEDED + (OPTIONAL if set(OPTIONAL) & set(arrays) else ())
    if not set(needed) <= set(arrays):
        found = one_line(", ".join(array_names(path))) or "nothing"
        raise ValueError(
            f"{path} must hold the arrays {', '.join(needed)}, found {found}: save them with numpy.savez(path, x_train=...)"
        )


def _scale(path: Path, arrays: Arrays, parts: list[str]) -> float:
    """The factor for pixels: 255 for floats in [0, 1], else 1."""
    units = {part: _unit(path, f"x_{part}", arrays[f"x_{part}"]) for part in parts}
    if len(set(units.values())) > 1:
        found = ", ".join(f"x_{part} {unit}" for part, unit in units.items())
        raise ValueError(f"{path}: pictures of all parts must be in the same units, got {found}: convert them to uint8")
    return 255.0 if units["train"] == UNIT_FLOATS else 1.0


def _unit(path: Path, name: str, pixels: np.ndarray[Any, Any]) -> str:
    """The unit of pixels. Floats that never exceed 1 would be black as 0 to 255, so they are taken as 0 to 1."""
    if pixels.dtype.kind not in "uif":
        raise ValueError(
            f"{path}: {name} must be uint8 or floats, got {pixels.dtype}: convert it with .astype('uint8')"
        )
    if pixels.dtype == np.uint8 or not pixels.size:
        return BYTES
    low, high = float(pixels.min()), float(pixels.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError(f"{path}: {name} must be finite, got NaN or infinite pixels: fix or remove these pictures")
    if low < 0 or high > 255:
        raise ValueError(
            f"{path}: {name} must lie in [0, 255] or, for floats, [0, 1], got {low:g} to {high:g}: undo its normalisation"
        )
    return UNIT_FLOATS if pixels.dtype.kind == "f" and high <= 1 else BYTES


def _pictures(path: Path, arrays: Arrays, part: str, scale: float) -> Pictures:
    pixels, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
    if pixels.ndim not in (3, 4) or 0 in pixels.shape or (pixels.ndim == 4 and pixels.shape[3] > MOST_CHANNELS):
        raise ValueError(
            f"{path}: x_{part} must have the shape (N, H, W) or (N, H, W, C) with C at most {MOST_CHANNELS}, got "
            f"{pixels.shape}: put channels last with .transpose(0, 2, 3, 1)"
        )
    if labels.ndim != 1 or len(labels) != len(pixels):
        raise ValueError(
            f"{path}: y_{part} must have one label for each of the {len(pixels):,} pictures of x_{part}, shape "
            f"({len(pixels)},), got {labels.shape}: save matching labels and pictures"
        )
    if pixels.dtype != np.uint8:
        pixels = np.rint(pixels * scale).astype(np.uint8)
    images = torch.from_numpy(np.ascontiguousarray(pixels))
    return Pictures(images if images.ndim == 4 else images.unsqueeze(-1), _labels(path, labels, part))


def _labels(path: Path, labels: np.ndarray[Any, Any], part: str) -> torch.Tensor:
    whole = labels.dtype.kind in "ui" or (labels.dtype.kind == "f" and bool((labels == np.rint(labels)).all()))
    if not whole or not labels.min() >= 0 or not labels.max() < 2**31:
        bad = labels.dtype if labels.dtype.kind not in "uif" else _first_bad(labels)
        raise ValueError(
            f"{path}: y_{part} must be whole numbers from 0, one per class, got {bad}: number the classes 0, 1, 2, ..."
        )
    return torch.from_numpy(labels.astype(np.int64))


def _first_bad(labels: np.ndarray[Any, Any]) -> str:
    good = (labels >= 0) & (labels < 2**31) & (labels == np.rint(labels))
    return str(labels[~good][0].item())


def _check_shapes(path: Path, pictures: dict[str, Pictures]) -> None:
    expected = pictures["train"].images.shape[1:]
    for part, those in pictures.items():
        if those.images.shape[1:] != expected:
            raise ValueError(
                f"{path}: pictures of x_{part} must have the shape of x_train's, {tuple(expected)}, got "
                f"{tuple(those.images.shape[1:])}: resize them to one size"
            )


def _count_classes(path: Path, pictures: dict[str, Pictures]) -> int:
    there = pictures["train"].labels.unique()
    total = int(max(those.labels.max() for those in pictures.values())) + 1
    if len(there) != total or total < 2:
        gaps = (there != torch.arange(len(there))).nonzero()
        missing = int(gaps[0]) if len(gaps) else len(there)
        raise ValueError(
            f"{path}: y_train must have at least two classes and every class from 0 to {max(total, 2) - 1}, got none of "
            f"class {missing}: number the classes 0, 1, 2, ... without a gap"
        )
    return total
