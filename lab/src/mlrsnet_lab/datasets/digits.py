"""scikit-learn's digits: 1,797 handwritten digits of 8x8 pixels, which come with the package."""

from pathlib import Path

import torch
from torch import Tensor

from mlrsnet_lab.datasets import split
from mlrsnet_lab.datasets.extras import need
from mlrsnet_lab.datasets.images import ImageDataset, Pictures, Source, choose, mean_and_std, resize
from mlrsnet_lab.datasets.options import PictureOptions

NUM_TRAIN, NUM_VAL = 1200, 297


def load(name: str, root: Path, options: PictureOptions) -> ImageDataset:
    """The same disjoint parts in every run: 1,200 digits to train on, 297 to validate on, 300 to test on, over all ten classes."""
    if options.val_size not in (None, NUM_VAL):
        raise ValueError(f"val_size must be {NUM_VAL} for digits, got {options.val_size}: leave it out")
    if options.classes is not None:
        split.check_classes(options.classes, 10, "digits")
    pictures = resize(_read(), options.size)
    train, val, test = _parts(len(pictures.labels), options.leaky, options.overlap)
    mean, std = mean_and_std(
        pictures.images[train], options.std
    )  # over all ten classes, so that any choice of classes has the same
    return ImageDataset(
        name,
        10 if options.classes is None else len(options.classes),
        choose(pictures[train], 10, options),
        choose(pictures[val], 10, options),
        choose(pictures[test], 10, options),
        pad=0,
        flip=False,
        mean=mean,
        std=std,
        note=split.note(options),
    )


def colour(side: int) -> Source:
    """All digits as colour pictures of this side, from 0 to 255, to try methods for photographs on."""
    pictures = _read()
    bright = Pictures((pictures.images.float() * (255 / 16)).round().to(torch.uint8), pictures.labels)
    large = resize(bright, side)
    whole = Pictures(large.images.expand(-1, -1, -1, 3).contiguous(), large.labels)
    train, val, test = _parts(len(whole.labels))
    return Source("digits", 10, whole[torch.cat((train, val))], whole[test])


def _parts(count: int, leaky: bool = False, overlap: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    order = torch.randperm(count, generator=torch.Generator().manual_seed(split.SPLIT_SEED))
    held_out = NUM_TRAIN + NUM_VAL
    val = order[NUM_TRAIN:held_out]
    if overlap:
        again = torch.randperm(held_out, generator=torch.Generator().manual_seed(split.OTHER_SEED))
        val = order[again[:NUM_VAL]]
    return order[: held_out if leaky else NUM_TRAIN], val, order[held_out:]


def _read() -> Pictures:
    source = need("sklearn.datasets", "the dataset digits").load_digits()
    images = torch.as_tensor(source.images, dtype=torch.uint8).unsqueeze(-1)
    return Pictures(images, torch.as_tensor(source.target, dtype=torch.int64))
