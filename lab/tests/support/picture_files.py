"""Files and folders of pictures for the tests of tasks."""

import numpy as np
from PIL import Image

PARTS = ("train", "val", "test")


def write(path, train=60, test=20, classes=10, shape=(4, 4, 3), **changes):
    """A file in which a picture's first pixel identifies it. `changes` replace arrays; None removes one."""
    random = np.random.default_rng(0)
    arrays = {}
    for part, count, first in (("train", train, 0), ("test", test, train)):
        arrays[f"x_{part}"] = random.integers(0, 256, (count, *shape), dtype=np.uint8)
        arrays[f"x_{part}"].reshape(count, -1)[:, 0] = np.arange(first, first + count)
        arrays[f"y_{part}"] = np.arange(count) % classes
    arrays |= changes
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def identities(pictures):
    return pictures.images.flatten(1)[:, 0].tolist()


def draw_folder(folder, classes=("cat", "dog"), count=6, parts=("train", "test"), size=(40, 30)):
    random = np.random.default_rng(0)
    for part in parts:
        for name in classes:
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{number}.png")
    return folder
