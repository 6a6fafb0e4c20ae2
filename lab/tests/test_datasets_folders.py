"""Folders of pictures: parts and classes, batches that repeat, and what is refused."""

import numpy as np
import pytest
import torch
from picture_files import PARTS, draw_folder
from PIL import Image

from mlrsnet_lab.datasets import load


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
