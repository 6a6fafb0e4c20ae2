"""Datasets of pictures that fit in memory, and how they are made from arrays."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from mlrsnet_lab.datasets import split
from mlrsnet_lab.datasets.options import PictureOptions

CHUNK = 4096  # pictures converted to floats at a time


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures, uint8 (N, H, W, C), and their labels, int64 (N), on the CPU."""

    images: Tensor
    labels: Tensor

    def __getitem__(self, indices: Tensor | slice) -> "Pictures":
        return Pictures(self.images[indices], self.labels[indices])


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Pictures to train, validate and test on, and how to augment them.

    pad: random crops after padding by this much; 0 for none.
    flip: random horizontal flips.
    augment_val: whether batches to validate on are augmented, too.
    mean, std: of the training pictures, per channel, in units of uint8 (0 to 255).
    note: what a record should say about the data.
    digest: of a well-known dataset, before anything is chosen or held out (`sources.of_pictures`).
    """

    name: str
    num_classes: int
    train: Pictures
    val: Pictures
    test: Pictures
    pad: int
    flip: bool
    mean: tuple[float, ...]
    std: tuple[float, ...]
    note: str = ""
    augment_val: bool = False
    digest: str = ""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a picture."""
        height, width, channels = self.train.images.shape[1:]
        return channels, height, width

    @property
    def sizes(self) -> dict[str, int]:
        """The number of pictures in each part."""
        return {part: len(getattr(self, part).labels) for part in ("train", "val", "test")}


@dataclass(frozen=True, eq=False)
class Source:
    """A dataset as it was read: training and test pictures, and validation pictures if it has its own."""

    name: str
    num_classes: int
    train: Pictures
    test: Pictures
    val: Pictures | None = None


def make(source: Source, options: PictureOptions, pad: int, flip: bool, note: str = "") -> ImageDataset:
    """Choose classes, hold out validation pictures, resize, and compute mean and standard deviation."""
    whole, test = (choose(p, source.num_classes, options) for p in (source.train, source.test))
    chosen = split.cut(whole.labels, options, held_out=source.val is None)
    train = resize(whole[chosen.train], options.size)
    val = whole[chosen.val] if source.val is None else choose(source.val, source.num_classes, options)
    if not len(test.labels) or not len(val.labels):
        raise ValueError(
            f"classes must have test and validation pictures in {source.name}, got {options.classes}: choose others"
        )
    mean, std = mean_and_std(train.images, options.std)
    return ImageDataset(
        source.name,
        source.num_classes if options.classes is None else len(options.classes),
        train,
        resize(val, options.size),
        resize(test, options.size),
        pad if options.augment else 0,
        flip and options.augment,
        mean,
        std,
        "; ".join(filter(None, (note, split.note(options)))),
        options.augment_val,
    )


def choose(pictures: Pictures, num_classes: int, options: PictureOptions) -> Pictures:
    """The pictures of the chosen classes, with labels in the order of the choice."""
    if options.classes is None:
        return pictures
    labels = split.number(pictures.labels, options.classes, num_classes)
    return replace(pictures, labels=labels)[(labels >= 0).nonzero().flatten()]


def resize(pictures: Pictures, size: int | None) -> Pictures:
    """Resize to side `size`: averages areas to shrink, interpolates bilinearly to enlarge."""
    if size is None or pictures.images.shape[1:3] == (size, size):
        return pictures
    return replace(pictures, images=torch.cat([_resize(chunk, size) for chunk in pictures.images.split(CHUNK)]))


def _resize(images: Tensor, size: int) -> Tensor:
    planes = images.permute(0, 3, 1, 2).float()
    if size <= min(planes.shape[2:]):
        planes = interpolate(planes, size=(size, size), mode="area")
    else:
        planes = interpolate(planes, size=(size, size), mode="bilinear", antialias=True)
    return planes.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def mean_and_std(images: Tensor, of: str = "set") -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and unbiased standard deviation of each channel, from a histogram of its 256 values; `of`: see `PictureOptions.std`."""
    values, means, stds = torch.arange(256, dtype=torch.float64), [], []
    for channel in range(images.shape[-1]):
        often = sum(chunk[..., channel].flatten().bincount(minlength=256) for chunk in images.split(CHUNK))
        mean = (often * values).sum() / often.sum()
        variance = (often * (values - mean) ** 2).sum() / max(int(often.sum()) - 1, 1)
        means.append(float(mean))
        # A constant channel, such as an opaque alpha, is only centred: its deviation is 0.
        stds.append(float(variance.sqrt()) or 1.0)
    return tuple(means), tuple(stds) if of == "set" else _picture_std(images)


def _picture_std(images: Tensor) -> tuple[float, ...]:
    """The mean over pictures of each one's own deviation, per channel."""
    sums = sum(chunk.double().flatten(1, 2).std(1).sum(0) for chunk in images.split(CHUNK))
    assert isinstance(sums, Tensor)
    return tuple(float(value) or 1.0 for value in sums / len(images))
