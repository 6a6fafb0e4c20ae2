"""Pictures in tar files: the same training as with a folder of them, and what is refused."""

import io
import tarfile

import pytest
from picture_files import PARTS, draw_folder, draw_shards
from runs import assert_same

from mlrsnet_lab.datasets import load
from mlrsnet_lab.loop import run
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec


def add(file, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    file.addfile(member, io.BytesIO(content))


@pytest.fixture
def both(tmp_path):
    """A folder of pictures, and shards of them."""
    folder = draw_folder(tmp_path / "animals", count=16)
    return folder, draw_shards(folder, tmp_path / "shards", of=5)


def test_shards_are_trained_on_as_a_folder_with_the_same_pictures(both, tmp_path):
    def train(task):
        small = {"model": "mlp", "model_options": {"width": 4}, "epochs": 2, "batch_size": 4, "lr": 0.01}
        return run(
            RunSpec(task=str(task), task_options={"size": 8}, **small),
            settings=Settings(device="cpu", root=tmp_path / "data"),
        )

    one, other = (train(task).comparable() for task in both)
    assert one["record"].pop("spec") != other["record"].pop("spec")
    assert_same(one, other)


def test_the_list_of_pictures_is_kept_until_the_shards_change(both, tmp_path, monkeypatch):
    root, (_, shards) = tmp_path / "data", both
    first = load(str(shards), root=root, size=8)
    assert len(list((root / "shards").iterdir())) == 2  # of train/ and of test/
    with monkeypatch.context() as patch:
        patch.setattr(tarfile, "open", None)
        again = load(str(shards), root=root, size=8, augment=False)
    assert [getattr(again, part) for part in PARTS] == [getattr(first, part) for part in PARTS]
    for kept in (root / "shards").iterdir():
        kept.write_text("[[")
    assert load(str(shards), root=root, size=9).train == first.train
    with tarfile.open(shards / "test" / "9.tar", "w") as file:
        add(file, "more.cls", b"0\n")
        add(file, "more.jpg", b"")
    assert load(str(shards), root=root, size=10).sizes["test"] == first.sizes["test"] + 1


def test_shards_have_the_options_of_folders(both, tmp_path):
    chosen = load(str(both[1]), root=tmp_path, classes=(1, 0), val_size=4)
    assert (chosen.classes, chosen.num_classes) == (("1", "0"), 2)
    assert all((place.key.startswith("dog")) == (label == 0) for place, label in chosen.train)


BAD = {
    "no-class": ({"a.jpg": b""}, r"must have a picture and a class number .* but 'a' has only one of them"),
    "no-picture": ({"a.cls": b"0"}, r"'a' has only one of them: write it again"),
    "empty": ({}, r"but there is none: write it again"),
    "name": ({"a.jpg": b"", "a.cls": b"cat"}, r"\(a.cls\) must be the number of a class, from 0, got 'cat'"),
    "negative": ({"a.jpg": b"", "a.cls": b"-1"}, r"must be the number of a class, from 0, got '-1'"),
    "new-class": ({"a.jpg": b"", "a.cls": b"7"}, r"must have classes of train/ only, got class 7"),
    "one-picture": ({"a.jpg": b"no", "a.cls": b"0"}, r"more.tar \(a.jpg\) cannot be read as a picture"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_shard_is_named(kind, both, tmp_path):
    content, message = BAD[kind]
    with tarfile.open(both[1] / "test" / "more.tar", "w") as file:
        for name, written in content.items():
            add(file, name, written)
    with pytest.raises(ValueError, match=message):
        list(load(str(both[1]), root=tmp_path / kind).batches("test", 4, order=None, seed=0, workers=0))


@pytest.mark.parametrize("damage", ["compressed", "cut", "text"])
def test_a_file_that_is_no_plain_tar_is_named(damage, both, tmp_path):
    path = next((both[1] / "train").iterdir())
    if damage == "compressed":
        with tarfile.open(path, "w:gz") as file:
            add(file, "a.cls", b"0")
    else:
        path.write_bytes(path.read_bytes()[:3000] if damage == "cut" else b"not a tar file" * 100)
    with pytest.raises(ValueError, match=r"\.tar cannot be read as an uncompressed tar file \(.+\): write it again"):
        load(str(both[1]), root=tmp_path / damage)
