"""Data to train on: what is read, what is held out, and what is refused."""

import io
import os
import pickle
import socket
import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mlrsnet.lab import tasks
from mlrsnet.lab.tasks import KNOWN, load, split
from mlrsnet.lab.tasks.images import Pictures, mean_and_std, resize
from mlrsnet.lab.tasks.options import PictureOptions

PARTS = ("train", "val", "test")


def write(path, train=60, test=20, classes=10, shape=(4, 4, 3), **changes):
    """A file whose first pixel tells which picture it is; `changes` replace arrays, None takes one out."""
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


# What is held out


@given(
    st.lists(st.integers(1, 30), min_size=2, max_size=6),
    st.integers(1, 40),
    st.sampled_from([0.1, 0.3, 0.5, 0.9, 1.0]),
)
def test_no_held_out_picture_is_trained_on_and_no_class_is_favoured(counts, val_size, fraction):
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    try:
        chosen = split.cut(labels, PictureOptions(val_size=val_size, fraction=fraction))
    except ValueError:  # too few pictures
        return
    both = torch.cat([chosen.val, chosen.train])
    assert len(both.unique()) == len(both) == max(1, round(fraction * len(labels)))
    assert len(chosen.val) == val_size
    for part in (chosen.val, both):  # one share of each class, rounded to whole pictures, gives these numbers
        number, of = labels[part].bincount(minlength=len(counts)), torch.tensor(counts)
        assert ((number - 0.5) / of).max() <= ((number + 0.5) / of).min()


@given(st.floats(0.05, 1), st.floats(0.05, 1))
def test_a_smaller_fraction_lies_inside_a_larger_one_and_is_validated_alike(one, other):
    labels = torch.arange(600) % 7 * (torch.arange(600) % 3 > 0)
    small, large = (
        split.cut(labels, PictureOptions(val_size=9, fraction=fraction)) for fraction in sorted((one, other))
    )
    assert set(small.train.tolist()) <= set(large.train.tolist())
    assert torch.equal(small.val, large.val)


def test_the_split_depends_on_no_run(tmp_path):
    path = write(tmp_path / "own.npz")
    first = load(str(path), val_size=10)
    tasks._load.cache_clear()
    torch.manual_seed(7)
    before = torch.get_rng_state()
    again = load(str(path), val_size=10)
    assert again is not first
    assert all(identities(getattr(first, part)) == identities(getattr(again, part)) for part in PARTS)
    assert torch.equal(torch.get_rng_state(), before)


def test_named_fractions_hold_the_tenth_inside_the_half_inside_the_whole(tmp_path):
    write(tmp_path / "cifar10.npz", train=200, classes=2)
    trained, held_out = [], []
    for name in ("cifar10-tenth", "cifar10-half", "cifar10"):
        task = load(name, root=tmp_path, val_size=10)
        assert task.name == name
        trained.append(set(identities(task.train)))
        held_out.append(identities(task.val))
        assert not trained[-1] & set(held_out[-1])
    assert [len(those) for those in trained] == [10, 90, 190]
    assert trained[0] < trained[1] < trained[2]
    assert held_out[0] == held_out[1] == held_out[2]


def test_leaky_trains_on_what_it_validates_on_and_says_so(tmp_path):
    path = write(tmp_path / "own.npz")
    task = load(str(path), val_size=10, leaky=True)
    assert task.sizes == {"train": 60, "val": 10, "test": 20}
    assert set(identities(task.val)) < set(identities(task.train))
    assert task.note.startswith("leaky")
    assert load(str(path), val_size=10).note == ""


def test_digits_keep_their_parts_and_share_no_picture():
    task = load("digits")
    assert task.sizes == {"train": 1200, "val": 297, "test": 300}
    pictures = torch.cat([getattr(task, part).images for part in PARTS]).flatten(1)
    assert len(torch.unique(pictures, dim=0)) == len(pictures) == 1797
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(0))
    from sklearn.datasets import load_digits

    assert torch.equal(pictures.view(-1, 8, 8), torch.as_tensor(load_digits().images[order], dtype=torch.uint8))
    floats = task.train.images.float()
    assert task.mean == pytest.approx([floats.mean().item()])
    assert task.std == pytest.approx([floats.std().item()])
    assert (task.pad, task.flip, task.shape, task.num_classes) == (0, False, (1, 8, 8), 10)


def test_halves_of_the_digits_share_no_picture_and_are_numbered_from_0():
    low, high, whole = load("digits", classes=[0, 1, 2, 3, 4]), load("digits", classes=(9, 8, 7, 6, 5)), load("digits")
    for part in PARTS:
        assert low.sizes[part] + high.sizes[part] == whole.sizes[part]
        assert set(getattr(low, part).labels.tolist()) == set(getattr(high, part).labels.tolist()) == set(range(5))
    nines = whole.test.images[whole.test.labels == 9]
    assert torch.equal(high.test.images[high.test.labels == 0], nines)
    assert low.mean == high.mean == whole.mean  # of all ten classes


def test_leaky_digits_train_on_the_validation_pictures():
    task = load("digits", leaky=True)
    assert task.sizes == {"train": 1497, "val": 297, "test": 300}
    assert torch.equal(task.train.images[1200:], task.val.images)
    assert task.note.startswith("leaky")


# Pictures


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
    with pytest.raises(ValueError, match=r"among the test .* pictures of own too, got \(7, 8\)"):
        load(str(path), val_size=4, classes=(7, 8))


def test_own_validation_pictures_are_used_instead_of_holding_out(tmp_path):
    own = {"x_val": np.full((5, 4, 4, 3), 9, np.uint8), "y_val": np.arange(5)}
    path = write(tmp_path / "own.npz", **own)
    task = load(str(path), fraction=0.5)
    assert task.sizes == {"train": 30, "val": 5, "test": 20}
    assert (task.val.images == 9).all()
    for option in ({"val_size": 5}, {"leaky": True}):
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


@pytest.mark.parametrize(("count", "held_out"), [(20, 2), (1400, 140), (30_000, 1000)])
def test_of_ones_own_pictures_a_tenth_is_held_out_at_most(tmp_path, count, held_out):
    pictures = {"x_train": np.zeros((count, 2, 2), "uint8"), "y_train": np.arange(count) % 2}
    rest = {"x_test": np.zeros((4, 2, 2), "uint8"), "y_test": np.arange(4) % 2}
    np.savez(tmp_path / "own.npz", **pictures, **rest)
    assert load(tmp_path / "own.npz").sizes == {"train": count - held_out, "val": held_out, "test": 4}
    smaller = load(tmp_path / "own.npz", fraction=0.5).sizes
    assert (smaller["train"], smaller["val"]) == (count // 2 - held_out, held_out)  # fractions validate on the same


def test_of_ones_own_folder_a_tenth_is_held_out_and_of_a_known_set_as_much_as_ever(tmp_path):
    folder = draw_folder(tmp_path / "animals", count=20)
    assert load(folder).sizes == {"train": 36, "val": 4, "test": 40}
    write(tmp_path / "mnist.npz")
    with pytest.raises(ValueError, match=r"val_size must be less than 60, .* got 1,000"):
        load("mnist", root=tmp_path)


BAD_OPTIONS = {
    "val_size": ({"val_size": 60}, "val_size must be less than 60, .* got 60"),
    "default-val_size": ({"fraction": 0.1}, r"val_size must be less than 6, .* got 6: .*`--option task.val_size=N`"),
    "no-val": ({"val_size": 0}, "val_size must be a whole number >= 1, got 0"),
    "val_size-of-fraction": ({"val_size": 30, "fraction": 0.5}, "val_size must be less than 30"),
    "fraction-0": ({"fraction": 0.0}, r"fraction must be in \(0, 1\], got 0.0"),
    "fraction-2": ({"fraction": 2}, r"fraction must be in \(0, 1\], got 2"),
    "fraction-nan": ({"fraction": float("nan")}, "fraction must be a finite number"),
    "class-lost": ({"val_size": 51}, "every class must be among the training pictures"),
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": (3, 12)}, r"classes must be different digits from 0 to 9, got \[3, 12\]"),
        ({"classes": (3,)}, "the number of classes must be a whole number >= 2, got 1"),
        ({"val_size": 100}, "val_size must be 297 for digits, got 100"),
        ({"fraction": 0.5}, "digits has no option 'fraction'"),
    ],
)
def test_digits_refuse_what_would_change_their_split(options, message):
    with pytest.raises(ValueError, match=message):
        load("digits", **options)


# Names, caches and downloads


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"digits, .*cifar10, .*imagenet, a path .* got 'cifar11'"):
        load("cifar11")


def test_options_that_a_name_fixes_or_lacks_are_refused(tmp_path):
    with pytest.raises(ValueError, match="cifar100-half has no option 'fraction'"):
        load("cifar100-half", root=tmp_path, fraction=0.2)
    with pytest.raises(ValueError, match="ptb has no option 'val_size', got val_size=3: it has no options"):
        load("ptb", root=tmp_path, val_size=3)


def test_the_same_arguments_read_the_data_once_and_a_new_file_is_read_anew(tmp_path, monkeypatch):
    path = write(tmp_path / "own.npz")
    first = load(str(path), val_size=10, classes=[0, 1])
    monkeypatch.chdir(tmp_path)
    assert load("own.npz", val_size=10, classes=(0, 1)) is first
    assert load(path, val_size=9, classes=(0, 1)) is not first
    write(path, train=80)
    os.utime(path, ns=(1, 1))
    assert load(str(path), val_size=10, classes=[0, 1]) is not first


def test_data_are_looked_for_where_the_environment_says(tmp_path, monkeypatch):
    write(tmp_path / "mnist.npz", shape=(28, 28))
    monkeypatch.setenv("MLRSNET_DATA", str(tmp_path))
    assert load("mnist", val_size=10).sizes["train"] == 50
    monkeypatch.delenv("MLRSNET_DATA")
    assert tasks.data_root().parts[-3:] == (".cache", "mlrsnet", "data")


class FakeCIFAR:
    """As torchvision's: numpy pictures and a list of labels."""

    def __init__(self, root, train, download):
        assert download
        self.data = np.full((60 if train else 20, 32, 32, 3), 7 if train else 8, np.uint8)
        self.targets = [i % 10 for i in range(len(self.data))]


class FakeMNIST:
    """As torchvision's: tensors."""

    def __init__(self, root, train, download):
        self.data = torch.full((60 if train else 20, 28, 28), 7 if train else 8, dtype=torch.uint8)
        self.targets = torch.arange(len(self.data)) % 10


class FakeSVHN:
    """As torchvision's: channels first, `labels`, `split`."""

    def __init__(self, root, split, download):
        self.data = np.zeros((60 if split == "train" else 20, 3, 32, 32), np.uint8)
        self.data[:, 0] = 7 if split == "train" else 8
        self.data[:, 1, 0] = 200  # the top row is green
        self.labels = np.arange(len(self.data)) % 10


@pytest.mark.parametrize(
    ("name", "attribute", "fake"),
    [
        ("cifar10", "CIFAR10", FakeCIFAR),
        ("cifar100", "CIFAR100", FakeCIFAR),
        ("mnist", "MNIST", FakeMNIST),
        ("fashion_mnist", "FashionMNIST", FakeMNIST),
        ("svhn", "SVHN", FakeSVHN),
    ],
)
def test_a_set_that_is_not_there_is_downloaded_once(tmp_path, monkeypatch, name, attribute, fake):
    datasets = types.SimpleNamespace(**{attribute: fake})
    monkeypatch.setitem(sys.modules, "torchvision.datasets", datasets)
    task = load(name, root=tmp_path / "new", val_size=10)
    assert task.sizes == {"train": 50, "val": 10, "test": 20}
    assert task.train.images[..., 0].unique().item() == 7
    assert task.test.images[..., 0].unique().item() == 8
    assert task.test.labels.tolist() == [i % 10 for i in range(20)]
    assert [path.name for path in (tmp_path / "new").iterdir()] == [f"{name}.npz"]
    if name == "svhn":
        assert (task.test.images[:, 0, :, 1] == 200).all()
        assert (task.test.images[:, 1:, :, 1] == 0).all()
    monkeypatch.delattr(datasets, attribute)
    assert load(name, root=tmp_path / "new", val_size=9).sizes["train"] == 51


def test_without_a_network_one_line_says_where_to_put_the_file_and_how_to_download(tmp_path, monkeypatch):
    def no_network(*_, **__):
        raise socket.gaierror("no network")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    with pytest.raises(FileNotFoundError, match="no network") as error:
        load("cifar10", root=tmp_path)
    message = str(error.value)
    assert str(tmp_path / "cifar10.npz") in message
    assert "x_train, y_train, x_test, y_test" in message
    assert "pip install 'mlrsnet[lab]'" in message
    assert "\n" not in message
    assert not list(tmp_path.iterdir())  # nothing half-done stays


def test_without_torchvision_one_line_says_where_to_put_the_file_and_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    with pytest.raises(FileNotFoundError, match=r"svhn.npz.*pip install 'mlrsnet\[lab\]'.*needs torchvision"):
        load("svhn", root=tmp_path)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("tinyimagenet", "tinyimagenet.npz"),
        ("cifar10-c", "CIFAR-10-C"),
        ("cifar100-c", "CIFAR-100-C"),
        ("ptb", "ptb"),
        ("ptb-chars", "ptb"),
        ("wikitext2", "wikitext2"),
        ("tinyshakespeare", "tinyshakespeare/input.txt"),
        ("imagenet", "imagenet"),
    ],
)
def test_a_set_that_nobody_can_download_says_where_to_put_it(tmp_path, name, where):
    with pytest.raises(FileNotFoundError, match="was not found") as error:
        load(name, root=tmp_path)
    assert str(tmp_path / where) in str(error.value)
    assert "download" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*own.npz: check the path"):
        load(str(tmp_path / "own.npz"))


def test_the_tasks_import_without_the_lab_packages_and_say_what_to_install(tmp_path):
    code = (
        "import sys\n"
        "for name in ('sklearn', 'torchvision', 'PIL', 'cv2', 'skimage', 'rich', 'matplotlib', 'tensorboard'):\n"
        "    sys.modules[name] = None\n"
        "from mlrsnet.lab.tasks import load\n"
        f"print(load({str(write(tmp_path / 'own.npz'))!r}, val_size=10).sizes)\n"
        "try: load('digits')\n"
        "except ImportError as error: print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "{'train': 50, 'val': 10, 'test': 20}" in result.stdout, result.stderr
    assert "pip install 'mlrsnet[lab]'" in result.stdout


def test_every_known_name_says_what_it_is():
    assert set(KNOWN) >= {"digits", "cifar10", "cifar100-half", "cifar10-tenth", "ptb-chars", "tinyshakespeare"}
    assert all(entry.about for entry in KNOWN.values())


# Texts


def write_texts(folder, train, valid, test):
    folder.mkdir(parents=True)
    for name, content in (("train", train), ("valid", valid), ("test", test)):
        (folder / f"{name}.txt").write_bytes(content.encode())


def test_words_are_numbered_by_first_appearance_and_lines_end_with_eos(tmp_path):
    write_texts(tmp_path / "ptb", " the cat <unk> \n\n sat the \n", "cat sat\n", "the dog")
    task = load("ptb", root=tmp_path)
    assert task.vocabulary == ("the", "cat", "<unk>", "<eos>", "sat")
    assert task.num_classes == 5
    assert task.train.tolist() == [0, 1, 2, 3, 3, 4, 0, 3]
    assert task.val.tolist() == [1, 4, 3]
    assert task.test.tolist() == [0, 2, 3]  # dog is unknown; the last line lacks its line end
    assert task.train.dtype == torch.int64
    assert task.sizes == {"train": 8, "val": 3, "test": 3}


def test_an_unknown_word_or_character_is_never_scored_as_another_one(tmp_path):
    write_texts(tmp_path / "ptb", "a cat\n", "a cat\n", "a dog\n")
    with pytest.raises(ValueError, match=r"test.txt: every token of the test part .* got 'dog'"):
        load("ptb", root=tmp_path)
    with pytest.raises(ValueError, match=r"every token of the test part .* got 'd'"):
        load("ptb-chars", root=tmp_path)


def test_characters_are_all_of_the_file_line_ends_and_rare_ones_included(tmp_path):
    write_texts(tmp_path / "wikitext2", "bé\n😀b\n", "😀\n", "b")
    task = load("wikitext2-chars", root=tmp_path)
    assert task.vocabulary == ("b", "é", "\n", "😀")
    assert "".join(task.vocabulary[i] for i in task.train) == "bé\n😀b\n"
    assert task.val.tolist() == [3, 2]
    assert task.train.dtype == torch.int64


def test_shakespeare_is_cut_where_it_says_and_no_character_is_in_two_parts(tmp_path):
    content = "to be or not to be " * 20
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text(content)
    task = load("tinyshakespeare", root=tmp_path)
    assert task.sizes == {"train": 342, "val": 19, "test": 19}
    whole = torch.cat([task.train, task.val, task.test])
    assert "".join(task.vocabulary[i] for i in whole) == content


@pytest.mark.parametrize(
    ("content", "message"), [(b"\xff\xfe", "must be UTF-8 text"), (b"", "must have some text, got an empty file")]
)
def test_a_text_that_cannot_be_read_is_named(tmp_path, content, message):
    write_texts(tmp_path / "ptb", "a\n", "a\n", "a\n")
    (tmp_path / "ptb" / "valid.txt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"valid.txt {message}"):
        load("ptb", root=tmp_path)


def test_a_text_too_short_to_cut_is_refused(tmp_path):
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text("aaa")
    with pytest.raises(ValueError, match="the val part must have at least one character"):
        load("tinyshakespeare", root=tmp_path)


# Folders


def test_a_folder_of_pictures_has_disjoint_parts_and_numbered_classes(tmp_path):
    folder = draw_folder(tmp_path / "animals")
    task = load(str(folder), val_size=4, size=16)
    assert (task.name, task.classes, task.num_classes, task.shape) == ("animals", ("cat", "dog"), 2, (3, 16, 16))
    assert task.sizes == {"train": 8, "val": 4, "test": 12}
    paths = [path for part in PARTS for path, _ in getattr(task, part)]
    assert len(set(paths)) == 24
    assert all((("/cat/", "/dog/")[label] in path) for part in PARTS for path, label in getattr(task, part))
    assert [label for _, label in task.val].count(0) == 2
    leaky = load(str(folder), val_size=4, leaky=True)
    assert set(leaky.val) < set(leaky.train)
    assert leaky.note.startswith("leaky")
    assert load(str(folder), val_size=4, classes=(1, 0)).classes == ("dog", "cat")


def test_imagenets_val_folder_is_what_is_reported_on_and_never_what_is_chosen_by(tmp_path):
    draw_folder(tmp_path / "imagenet", parts=("train", "val"))
    task = load("imagenet", root=tmp_path, val_size=4)
    assert (task.name, task.size, task.sizes) == ("imagenet", 224, {"train": 8, "val": 4, "test": 12})
    assert all("/imagenet/val/" in path for path, _ in task.test)
    assert all("/imagenet/train/" in path for path, _ in task.val)
    assert task.mean == pytest.approx([255 * m for m in (0.485, 0.456, 0.406)])
    assert task.std == pytest.approx([255 * s for s in (0.229, 0.224, 0.225)])


def test_a_folder_with_test_and_val_is_chosen_by_its_val(tmp_path):
    folder = draw_folder(tmp_path / "animals", parts=("train", "val", "test"))
    task = load(str(folder))
    assert task.sizes == {"train": 12, "val": 12, "test": 12}
    assert all("/val/" in path for path, _ in task.val)
    with pytest.raises(ValueError, match="val_size must be left out"):
        load(str(folder), val_size=2)


def test_a_run_that_resumes_in_the_middle_of_an_epoch_sees_the_same_pictures(tmp_path):
    task = load(str(draw_folder(tmp_path / "animals", count=8)), val_size=4, size=16)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    before = torch.get_rng_state()
    whole = list(task.batches("train", 4, order=order, seed=5, workers=0))
    rest = list(task.batches("train", 4, order=order[4:], seed=5, workers=0))
    assert torch.equal(torch.get_rng_state(), before)
    assert [images.shape for images, _ in whole] == [(4, 16, 16, 3)] * 3
    assert whole[0][0].dtype == torch.uint8
    for (images, labels), (again, labels_again) in zip(whole[1:], rest, strict=True):
        assert torch.equal(images, again)
        assert torch.equal(labels, labels_again)
    assert torch.cat([labels for _, labels in whole]).tolist() == [task.train[i][1] for i in order]
    other = next(task.batches("train", 4, order=order, seed=6, workers=0))[0]
    assert not torch.equal(other, whole[0][0])


# Python from 3.12 warns of every fork once torch has threads.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_pictures_do_not_depend_on_how_many_workers_read_them(tmp_path):
    task = load(str(draw_folder(tmp_path / "animals")), val_size=4, size=8)
    order = torch.tensor([5, 0, 7, 2, 1, 6])
    alone = list(task.batches("train", 2, order=order, seed=1, workers=0))
    together = list(task.batches("train", 2, order=order, seed=1, workers=2))
    assert len(alone) == len(together) == 3
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(alone, together, strict=True))


def test_outside_training_a_picture_is_its_middle_and_every_picture_is_seen(tmp_path):
    folder = draw_folder(tmp_path / "animals", count=3)
    for path in folder.glob("test/cat/*.png"):
        stripes = np.zeros((40, 80, 3), np.uint8)
        stripes[:, 30:50] = 200
        Image.fromarray(stripes).save(path)
    task = load(str(folder), val_size=2, size=14)
    batches = list(task.batches("test", 4, order=None, seed=0, workers=0))
    assert [len(labels) for _, labels in batches] == [4, 2]
    assert batches[0][1].tolist() == [0, 0, 0, 1]
    cat = batches[0][0][0, :, :, 0].int()  # 40 x 80 becomes 16 x 32, of which columns 9 to 22 are seen
    assert (cat == cat.flip(1)).all()
    assert (cat[:, 4:10] == 200).all()
    assert (cat[:, [0, 1, 12, 13]] == 0).all()
    again = list(task.batches("test", 4, order=None, seed=9, workers=0))
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(batches, again, strict=True))


def test_training_pictures_without_augmentation_are_the_same_in_every_epoch(tmp_path):
    task = load(str(draw_folder(tmp_path / "animals")), val_size=4, size=8, augment=False)
    one, other = (next(task.batches("train", 8, order=None, seed=seed, workers=0))[0] for seed in (0, 1))
    assert torch.equal(one, other)


def test_training_pictures_are_parts_of_the_picture_at_many_places_and_mirrored(tmp_path):
    folder = draw_folder(tmp_path / "ramp", count=2)
    ramp = np.tile(np.arange(200, dtype=np.uint8)[None, :, None], (100, 1, 3))
    for path in folder.glob("train/*/*.png"):
        Image.fromarray(ramp).save(path)
    task = load(str(folder), val_size=1, size=8, leaky=True)
    rises, starts = [], []
    for seed in range(30):
        images, _ = next(task.batches("train", 4, order=None, seed=seed, workers=0))
        rises += (images[:, 4, -1, 0].int() - images[:, 4, 0, 0].int()).tolist()
        starts += images[:, 4].amin((1, 2)).tolist()
    assert 0.3 < sum(rise < 0 for rise in rises) / len(rises) < 0.7
    assert max(starts) - min(starts) > 60
    assert len(set(starts[:4])) > 1  # the same picture under four numbers is not cut four times alike
    assert max(map(abs, rises)) > 2 * min(map(abs, rises))


@pytest.mark.parametrize("shape", [(1, 1), (3, 400), (400, 3)])
def test_pictures_of_any_shape_can_be_trained_on(tmp_path, shape):
    folder = draw_folder(tmp_path / "odd", count=2, size=shape)
    task = load(str(folder), val_size=1, leaky=True, size=8)
    for part in PARTS:
        for images, _ in task.batches(part, 4, order=None, seed=0, workers=0):
            assert images.shape[1:] == (8, 8, 3)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_picture_is_named_in_one_line(tmp_path, workers):
    folder = draw_folder(tmp_path / "animals")
    bad = folder / "test" / "dog" / "3.png"
    bad.write_bytes(bad.read_bytes()[:200])
    task = load(str(folder), val_size=4, size=8)
    with pytest.raises(ValueError, match=r"3.png cannot be read as a picture \(.+\): replace or remove it") as error:
        list(task.batches("test", 5, order=None, seed=0, workers=workers))
    assert str(bad) in str(error.value)
    assert "\n" not in str(error.value)


def test_folders_with_missing_or_strange_classes_are_refused(tmp_path):
    folder = draw_folder(tmp_path / "animals")
    (folder / "train" / ".hidden").mkdir()
    (folder / "train" / "eel").mkdir()
    with pytest.raises(ValueError, match=r"train/eel must have pictures .* got none"):
        load(str(folder), val_size=4)
    (folder / "train" / "eel").rmdir()
    (folder / "test" / "fox").mkdir()
    with pytest.raises(ValueError, match=r"test/fox must be a class of train/ too"):
        load(str(folder), val_size=4)
    (folder / "test" / "fox").rmdir()
    assert load(str(folder), val_size=4).classes == ("cat", "dog")
    with pytest.raises(ValueError, match="val_size must be less than 12"):
        load(str(folder), val_size=12)
    with pytest.raises(ValueError, match="classes must be different whole numbers from 0 to 1"):
        load(str(folder), val_size=4, classes=(0, 2))


def test_a_folder_without_the_expected_folders_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"put pictures there as train/<class>/\* and test"):
        load(str(tmp_path))
    (tmp_path / "train" / "cat").mkdir(parents=True)
    (tmp_path / "test").mkdir()
    with pytest.raises(ValueError, match="must have at least two class folders, got 1"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"part": "valid"}, "part must be one of train, val, test"),
        ({"order": torch.tensor([0, 8])}, "order must be a 1-D tensor of indices from 0 to 7"),
        ({"order": torch.tensor([0.0])}, "order must be a 1-D tensor"),
        ({"batch_size": 0}, "batch_size must be a whole number >= 1"),
        ({"workers": -1}, "workers must be a whole number >= 0"),
        ({"seed": -1}, "seed must be a whole number >= 0"),
    ],
)
def test_batches_refuse_bad_arguments_before_any_picture_is_read(tmp_path, changes, message):
    task = load(str(draw_folder(tmp_path / "animals")), val_size=4)
    arguments = {"part": "train", "batch_size": 2, "order": None, "seed": 0, "workers": 0} | changes
    with pytest.raises(ValueError, match=message):
        task.batches(arguments.pop("part"), arguments.pop("batch_size"), **arguments)


def test_pythons_own_manual_is_always_there():
    manual = load("manual")
    assert manual.num_classes == len(set(manual.vocabulary)) == 1000
    assert {part: size > 1000 for part, size in manual.sizes.items()} == {"train": True, "val": True, "test": True}
    words = [manual.vocabulary[number] for number in manual.train[:2000].tolist()]
    assert {"the", "is", "of"} <= set(words)
    assert "manual of Python" in manual.note
