"""Files of pictures: what is made of them, and what is refused."""

import io
import pickle

import numpy as np
import pytest
import torch
from picture_files import PARTS, identities, write

from mlrsnet_lab.datasets import load
from mlrsnet_lab.datasets.images import Pictures, mean_and_std, resize


@pytest.mark.parametrize(
    ("name", "side", "pad", "flip"),
    [
        ("cifar10", 32, 4, True),
        ("cifar100", 32, 4, True),
        ("svhn", 32, 4, False),
        ("mnist", 28, 2, False),
        ("fashion_mnist", 28, 2, True),
        ("tinyimagenet", 64, 8, True),
    ],
)
def test_each_set_is_changed_while_training_in_the_way_that_keeps_its_classes(tmp_path, name, side, pad, flip):
    grey = "mnist" in name
    write(tmp_path / f"{name}.npz", shape=(side, side) if grey else (side, side, 3))
    task = load(name, root=tmp_path, val_size=10)
    assert (task.pad, task.flip, task.shape) == (pad, flip, (1 if grey else 3, side, side))
    assert "60 training and 20 test pictures" in task.note  # not the published set
    plain = load(name, root=tmp_path, val_size=10, augment=False)
    assert (plain.pad, plain.flip) == (0, False)
    half = load(name, root=tmp_path, val_size=10, size=side // 2)
    assert (half.pad, half.shape[1:]) == (pad // 2, (side // 2, side // 2))


def test_mean_and_deviation_are_the_training_pictures_own(tmp_path):
    task = load(str(write(tmp_path / "own.npz")), val_size=10)
    planes = task.train.images.double().flatten(0, 2)
    assert task.mean == pytest.approx(planes.mean(0).tolist())
    assert task.std == pytest.approx(planes.std(0).tolist())


def test_a_channel_that_never_changes_gives_no_infinite_pixels():
    assert mean_and_std(torch.full((3, 2, 2, 1), 255, dtype=torch.uint8)) == ((255.0,), (1.0,))


def test_pictures_are_resized_by_averaging():
    pictures = Pictures(
        torch.tensor([[0, 2, 100, 100], [4, 6, 100, 100]] * 2, dtype=torch.uint8)[None, ..., None], None
    )
    assert resize(pictures, 2).images.flatten().tolist() == [3, 100, 3, 100]
    larger = resize(pictures, 8).images
    assert larger.shape == (1, 8, 8, 1)
    assert (larger[0, :, 5:] == 100).all()


def test_chosen_classes_are_numbered_in_the_order_asked_for(tmp_path):
    path = write(tmp_path / "own.npz")
    task = load(str(path), val_size=4, classes=[7, 2])
    assert task.num_classes == 2
    for part in PARTS:
        pictures = getattr(task, part)
        assert [(7, 2)[label] for label in pictures.labels] == [i % 10 for i in identities(pictures)]
    assert task.sizes == {"train": 8, "val": 4, "test": 4}


def test_classes_that_cannot_be_tested_are_refused(tmp_path):
    path = write(tmp_path / "own.npz", y_test=np.arange(20) % 5)
    with pytest.raises(ValueError, match=r"classes must have test and validation pictures in own, got \(7, 8\)"):
        load(str(path), val_size=4, classes=(7, 8))


def test_own_validation_pictures_are_used_instead_of_holding_out(tmp_path):
    own = {"x_val": np.full((5, 4, 4, 3), 9, np.uint8), "y_val": np.arange(5)}
    path = write(tmp_path / "own.npz", **own)
    task = load(str(path), fraction=0.5)
    assert task.sizes == {"train": 30, "val": 5, "test": 20}
    assert (task.val.images == 9).all()
    for option in ({"val_size": 5}, {"leaky": True}, {"overlap": True}):
        with pytest.raises(ValueError, match=r"must be left out for .*own.npz.* \(x_val, y_val\)"):
            load(str(path), **option)


def test_own_pictures_are_cropped_and_flipped_only_if_asked(tmp_path):
    path = write(tmp_path / "own.npz")
    plain, asked = load(str(path), val_size=10), load(str(path), val_size=10, pad=2, flip=True)
    assert (plain.pad, plain.flip, asked.pad, asked.flip) == (0, False, 2, True)
    with pytest.raises(ValueError, match="augment must be True for pad=2"):
        load(str(path), val_size=10, pad=2, augment=False)


@pytest.mark.parametrize("unit", [1, 255])
def test_float_pictures_give_the_same_task_as_bytes(tmp_path, unit):
    pixels = np.random.default_rng(1).integers(0, 256, (60, 4, 4), dtype=np.uint8)
    pixels[0, 0] = 255
    both = []
    for name, scale in (("bytes", None), ("floats", unit / 255)):
        x = pixels if scale is None else (pixels * scale).astype(np.float32)
        both.append(load(str(write(tmp_path / f"{name}.npz", x_train=x, x_test=x[:20])), val_size=10))
    assert torch.equal(both[0].train.images, both[1].train.images)
    assert both[0].shape == (1, 4, 4)
    assert both[0].mean == both[1].mean


X, Y = np.zeros((60, 4, 4, 3), np.uint8), np.arange(60) % 10
BAD_ARRAYS = {
    "missing": ({"y_test": None}, r"must hold the arrays .*y_test, found x_test, x_train, y_train"),
    "half-val": ({"x_val": X}, "must hold the arrays .*y_val"),
    "objects": ({"y_train": np.array([{}] * 60)}, "holds Python objects, .* was not read"),
    "text": ({"x_train": X.astype(str)}, "x_train must be uint8 or floats, got <U"),
    "nan": ({"x_train": np.where(X == 0, np.nan, 0)}, "x_train must be finite"),
    "infinite": ({"x_test": np.full((20, 4, 4, 3), np.inf)}, "x_test must be finite"),
    "normalised": ({"x_train": X - 1.5}, r"x_train must lie in \[0, 255\].* got -1.5 to -1.5"),
    "too-bright": ({"x_train": X.astype(int) + 300}, r"x_train must lie in \[0, 255\].* got 300"),
    "mixed-units": ({"x_train": X / 255}, "same units, got x_train 0 to 1, x_test 0 to 255"),
    "flat": ({"x_train": X.reshape(60, -1)}, r"x_train must have the shape .* got \(60, 48\)"),
    "channels-first": ({"x_train": np.zeros((60, 3, 32, 32), np.uint8)}, "put channels last"),
    "none": ({"x_train": X[:0], "y_train": Y[:0]}, r"x_train must have the shape .* got \(0, 4, 4, 3\)"),
    "lengths": ({"y_train": Y[:59]}, r"one label for each of the 60 pictures of x_train.* got \(59,\)"),
    "column": ({"y_train": Y[:, None]}, r"one label for each .* got \(60, 1\)"),
    "half-labels": ({"y_train": Y + 0.5}, "y_train must be whole numbers from 0, .* got 0.5"),
    "nan-labels": ({"y_train": np.where(Y == 3, np.nan, Y)}, "y_train must be whole numbers from 0, .* got nan"),
    "negative": ({"y_test": np.arange(20) - 1}, "y_test must be whole numbers from 0, .* got -1"),
    "names": ({"y_train": Y.astype(str)}, "y_train must be whole numbers from 0, .* got <U"),
    "gap": ({"y_train": np.where(Y == 4, 5, Y)}, "got none of class 4"),
    "only-tested": ({"y_test": np.full(20, 10)}, "got none of class 10"),
    "huge": ({"y_train": np.where(Y == 4, 10**9, Y)}, "got none of class 4"),
    "one-class": ({"y_train": Y * 0, "y_test": np.zeros(20, int)}, "at least two classes"),
    "sizes": ({"x_test": np.zeros((20, 5, 4, 3), np.uint8)}, r"x_test must have the shape of x_train's, \(4, 4, 3\)"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_arrays_are_refused_in_one_line_that_names_the_file(tmp_path, case):
    changes, message = BAD_ARRAYS[case]
    path = write(tmp_path / "own.npz", **changes)
    with pytest.raises(ValueError, match=message) as error:
        load(str(path), val_size=10)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def _one_array():
    file = io.BytesIO()
    np.save(file, X)
    return file.getvalue()


def _truncated(path):
    content = write(path).read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _flipped_bits(path):
    content = bytearray(write(path).read_bytes())
    content[2000] ^= 255
    path.write_bytes(content)


BAD_FILES = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("no archive"),
    "pickle": lambda path: path.write_bytes(pickle.dumps({"x_train": 1})),
    "truncated": _truncated,
    "flipped": _flipped_bits,
    "one-array": lambda path: path.write_bytes(_one_array()),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_damaged_files_are_refused_in_one_line_that_names_the_file(tmp_path, case):
    path = tmp_path / "own.npz"
    BAD_FILES[case](path)
    with pytest.raises(ValueError, match=r"damaged or not an .npz|is a pickle") as error:
        load(str(path))
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


BAD_OPTIONS = {
    "val_size": ({"val_size": 60}, "val_size must be less than 60, .* got 60"),
    "default-val_size": ({"fraction": 0.1}, r"val_size must be less than 6, .* got 6: .*`--option task.val_size=N`"),
    "no-val": ({"val_size": 0}, "val_size must be a whole number >= 1, got 0"),
    "val_size-of-fraction": ({"val_size": 30, "fraction": 0.5}, "val_size must be less than 30"),
    "fraction-0": ({"fraction": 0.0}, r"fraction must be in \(0, 1\], got 0.0"),
    "fraction-2": ({"fraction": 2}, r"fraction must be in \(0, 1\], got 2"),
    "fraction-nan": ({"fraction": float("nan")}, "fraction must be a finite number"),
    "class-lost": ({"val_size": 51}, "every class must have training pictures"),
    "unknown-class": ({"val_size": 2, "classes": (0, 10)}, "classes must be different whole numbers from 0 to 9, got"),
    "twice": ({"val_size": 2, "classes": (1, 1)}, "classes must be different whole numbers"),
    "one": ({"val_size": 2, "classes": (1,)}, "the number of classes must be a whole number >= 2, got 1"),
    "no-classes": ({"val_size": 2, "classes": ()}, "classes must be different whole numbers"),
    "class-names": ({"classes": "cat"}, "classes must be whole numbers such as"),
    "size": ({"size": 0}, "size must be a whole number >= 1, got 0"),
    "leaky": ({"leaky": "false"}, "leaky must be True or False, got 'false'"),
    "pad": ({"pad": -1}, "pad must be a whole number >= 0, got -1"),
    "unknown": ({"valsize": 3}, "has no option 'valsize', got valsize=3: its options are val_size, fraction, .*flip"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options_are_refused_with_the_rule_and_the_value(tmp_path, case):
    options, message = BAD_OPTIONS[case]
    with pytest.raises(ValueError, match=message):
        load(str(write(tmp_path / "own.npz")), **options)
