"""Files and folders of pictures for the tests of tasks."""

import io
import tarfile

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


def draw_shards(folder, out, of):
    """The pictures of a folder as tar files of so many each, in an order of their own."""
    classes = sorted(path.name for path in (folder / "train").iterdir())
    for part in (path.name for path in folder.iterdir()):
        (out / part).mkdir(parents=True)
        pictures = sorted(folder.glob(f"{part}/*/*"), key=lambda path: path.read_bytes())
        for first in range(0, len(pictures), of):
            with tarfile.open(out / part / f"{first:04}.tar", "w") as file:
                for path in pictures[first : first + of]:
                    file.add(path, f"{path.parent.name}-{path.name}")
                    label = tarfile.TarInfo(f"{path.parent.name}-{path.stem}.cls")
                    label.size = 1
                    file.addfile(label, io.BytesIO(str(classes.index(path.parent.name)).encode()))
    return out
