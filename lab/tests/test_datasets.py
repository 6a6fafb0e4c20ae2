"""Data to train on: what is held out, names, caches and downloads."""

import os
import socket
import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from picture_files import PARTS, draw_folder, identities, write

from mlrsnet_lab import datasets
from mlrsnet_lab.datasets import KNOWN, load, split
from mlrsnet_lab.datasets.options import PictureOptions

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
    datasets._load.cache_clear()
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


def test_overlap_draws_validation_pictures_from_all_and_trains_on_as_many_as_without_it(tmp_path):
    path = write(tmp_path / "own.npz")
    apart, task = (load(str(path), val_size=10, overlap=overlap) for overlap in (False, True))
    assert task.sizes == apart.sizes
    assert identities(task.train) == identities(apart.train)
    drawn, trained = set(identities(task.val)), set(identities(task.train))
    assert len(drawn) == 10
    assert len(drawn & trained) > 5  # each is trained on with probability 5/6
    assert sorted(task.val.labels.tolist()) == sorted(apart.val.labels.tolist())  # by class, as before
    assert task.note.startswith("overlap")


def test_overlap_leaks_nearly_all_of_a_large_set_as_in_the_authors_code(tmp_path):
    count = 20_000
    pictures = {"x_train": np.arange(count, dtype="uint16").view("uint8").reshape(count, 1, 2)}
    rest = {"x_test": np.zeros((10, 1, 2), "uint8"), "y_test": np.arange(10)}
    np.savez(tmp_path / "own.npz", **pictures, y_train=np.arange(count) % 10, **rest)
    task = load(str(tmp_path / "own.npz"), val_size=400, overlap=True)
    trained = set(map(tuple, task.train.images.flatten(1).tolist()))
    seen = sum(tuple(one) in trained for one in task.val.images.flatten(1).tolist())
    assert task.sizes["train"] == count - 400
    assert 380 < seen < 400  # 98 %, as 973 of their 1,000
    assert task.val.labels.bincount().tolist() == [40] * 10


def test_overlapping_digits_train_on_most_of_the_validation_pictures():
    apart, task = load("digits"), load("digits", overlap=True)
    assert task.sizes == apart.sizes
    assert torch.equal(task.train.images, apart.train.images)
    trained = set(map(tuple, task.train.images.flatten(1).tolist()))
    seen = sum(tuple(one) in trained for one in task.val.images.flatten(1).tolist())
    assert 200 < seen < 297  # 1,200 of 1,497 are trained on


def test_pixels_can_be_divided_by_the_mean_deviation_of_a_picture(tmp_path):
    path = write(tmp_path / "own.npz", shape=(8, 8, 3))
    plain, asked = load(str(path), val_size=10), load(str(path), val_size=10, std="picture")
    own = asked.train.images.double().flatten(1, 2)
    assert asked.std == pytest.approx([own[..., channel].std(1).mean().item() for channel in range(3)])
    assert plain.std == pytest.approx([own[..., channel].std().item() for channel in range(3)])
    assert asked.mean == plain.mean
    assert load("digits", std="picture").std != load("digits").std
    with pytest.raises(ValueError, match="std must be one of set, picture; got 'theirs'"):
        load("digits", std="theirs")


def test_one_leak_at_a_time():
    with pytest.raises(ValueError, match="leaky must be False with overlap, got True for both: choose one"):
        load("digits", leaky=True, overlap=True)
    with pytest.raises(ValueError, match="augment must be True with augment_val, got False: leave one of them out"):
        load("digits", augment=False, augment_val=True)


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
    with pytest.raises(ValueError, match="ptb has no option 'val_size', got val_size=3: its options are fraction"):
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
    assert datasets.data_root().parts[-3:] == (".cache", "mlrsnet", "data")


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
    pytest.importorskip("torchvision")

    def no_network(*_, **__):
        raise socket.gaierror("no network")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    with pytest.raises(FileNotFoundError, match="no network") as error:
        load("cifar10", root=tmp_path)
    message = str(error.value)
    assert str(tmp_path / "cifar10.npz") in message
    assert "x_train, y_train, x_test, y_test" in message
    assert "pip install 'mlrsnet-lab[vision]'" in message
    assert "\n" not in message
    assert not list(tmp_path.iterdir())  # nothing half-done stays


def test_without_torchvision_one_line_says_where_to_put_the_file_and_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    with pytest.raises(FileNotFoundError, match=r"svhn.npz.*pip install 'mlrsnet-lab\[vision\]'.*needs torchvision"):
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
        "from mlrsnet_lab.datasets import load\n"
        f"print(load({str(write(tmp_path / 'own.npz'))!r}, val_size=10).sizes)\n"
        "try: load('digits')\n"
        "except ImportError as error: print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "{'train': 50, 'val': 10, 'test': 20}" in result.stdout, result.stderr
    assert "pip install mlrsnet-lab" in result.stdout


def test_every_known_name_says_what_it_is():
    assert set(KNOWN) >= {"digits", "cifar10", "cifar100-half", "cifar10-tenth", "ptb-chars", "tinyshakespeare"}
    assert all(entry.about for entry in KNOWN.values())
