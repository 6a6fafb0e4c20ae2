"""Corrupted pictures: what they look like, and what of them is trained on, validated on and tested on."""

import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import zoom
from sklearn.datasets import load_sample_images

from mlrsnet_lab.datasets import corrupted, corruptions, find, load
from mlrsnet_lab.datasets.corrupted import CorruptedOptions
from mlrsnet_lab.datasets.corruptions import CORRUPTIONS, PUBLISHED_ONLY, corrupt
from mlrsnet_lab.loop import run
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec

SEVERITIES = range(1, 6)
NOT_RANDOM = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}


MADE = [name for name in CORRUPTIONS if name != PUBLISHED_ONLY]


@pytest.fixture(scope="module")
def pictures():
    """48 pieces of two real photographs, 32x32."""
    pieces = []
    for photograph in load_sample_images().images:
        small = np.asarray(Image.fromarray(photograph).resize((192, 128), Image.Resampling.BOX))
        pieces += [small[y : y + 32, x : x + 32] for y in range(0, 128, 32) for x in range(0, 192, 32)]
    return np.stack(pieces)


@pytest.fixture
def make(pictures):
    return lambda name, severity, images=pictures, seed=0: corrupt(images, name, severity, seed=seed)


def distance(one, other):
    return np.abs(one.astype(float) - other).mean()


# What pictures look like


@pytest.mark.parametrize("name", MADE)
def test_a_corruption_gives_the_same_pictures_every_time_and_leaves_the_clean_ones_alone(name, make, pictures):
    before = pictures.copy()
    for severity in SEVERITIES:
        first = make(name, severity)
        assert (first.shape, first.dtype) == (pictures.shape, np.uint8)
        assert np.array_equal(first, make(name, severity))
        assert np.array_equal(first, make(name, severity, seed=1)) == (name in NOT_RANDOM)
    assert np.array_equal(pictures, before)


@pytest.mark.parametrize("name", [name for name in MADE if name != "elastic_transform"])
def test_a_higher_severity_is_worse(name, make, pictures):
    found = [distance(make(name, severity), pictures) for severity in SEVERITIES]
    assert found[0] > 0.5
    assert all(after > 0.9 * before for before, after in pairwise(found)), found  # some next ones differ in kind
    assert found[-1] > 1.3 * found[0]


def test_elastic_pictures_are_only_moved_at_first_and_torn_more_and_more():
    """The benchmark's lowest severity moves whole pictures furthest: the distance to the clean picture falls."""
    ramp = np.tile(np.arange(0, 224, 7, dtype=np.uint8)[None, None, :, None], (40, 32, 1, 3))
    found = [corrupt(ramp, "elastic_transform", severity)[:, 8:24, 8:24].astype(float) for severity in SEVERITIES]
    torn = [np.abs(np.diff(pixels, n=2, axis=2)).mean() for pixels in found]
    assert torn[0] < 1  # still a ramp, but for rounding
    assert torn == sorted(torn)
    assert torn[-1] > 3 * torn[0]
    moved = [np.abs(pixels - ramp[:, 8:24, 8:24]).mean() for pixels in found]
    assert min(moved) > 3


@pytest.mark.parametrize("name", MADE)
def test_the_worst_corruption_still_shows_which_picture_it_was(name, make, pictures):
    clean, worst = (p.mean(axis=(1, 2, 3)) for p in (pictures, make(name, 5)))
    assert np.corrcoef(clean, worst)[0, 1] > 0.9


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("value", [0, 255])
def test_black_and_white_pictures_can_be_corrupted(name, value, make):
    for severity in SEVERITIES:  # a division by zero would warn, and warnings are errors
        assert make(name, severity, np.full((2, 32, 32, 3), value, np.uint8)).shape == (2, 32, 32, 3)


@pytest.mark.parametrize("name", MADE)
def test_many_pictures_are_corrupted_in_pieces_and_each_in_its_own_way(name, make, pictures, monkeypatch):
    monkeypatch.setattr(corruptions, "CHUNK", 5)
    images = np.stack([pictures[20]] * 12)
    result = make(name, 3, images)
    same = all(np.array_equal(result[0], picture) for picture in result[1:])
    assert same == (name in NOT_RANDOM)


GREY = np.full((40, 32, 32, 3), 128, np.uint8)


def measured(name, severity):
    """The constant of the benchmark that a grey picture's pixels give away."""
    pixels = corrupt(GREY, name, severity).astype(float)
    if name == "gaussian_noise":
        return pixels.std() / 255
    if name == "shot_noise":  # a Poisson variable's mean over its variance, at white
        return 128 * 255 / pixels.var()
    if name == "impulse_noise":
        return (pixels != 128).mean()
    return (pixels.mean() - 127.5) / 255  # brightness


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gaussian_noise", (0.04, 0.06, 0.08, 0.09, 0.10)),
        ("shot_noise", (500, 250, 100, 75, 50)),
        ("impulse_noise", (0.01, 0.02, 0.03, 0.05, 0.07)),
        ("brightness", (0.05, 0.1, 0.15, 0.2, 0.3)),
    ],
)
def test_severities_are_those_of_cifar_and_not_of_imagenet(name, expected):
    assert [measured(name, severity) for severity in SEVERITIES] == pytest.approx(expected, rel=0.05)


def test_contrast_draws_each_colour_towards_its_own_mean(pictures):
    expected = 0.15 * pictures[0] + 0.85 * pictures[0].mean(axis=(0, 1))
    assert np.abs(corrupt(pictures[:1], "contrast", 5)[0] - expected).max() <= 1


def test_impulses_are_as_often_salt_as_pepper_and_hit_colours_one_by_one():
    pixels = corrupt(GREY, "impulse_noise", 5)
    assert set(np.unique(pixels)) == {0, 128, 255}
    assert (pixels == 255).sum() / (pixels != 128).sum() == pytest.approx(0.5, abs=0.03)
    assert (pixels != 128).all(axis=-1).mean() < 0.002


def test_motion_blur_is_half_a_gaussian_along_the_line_as_imagemagicks():
    point = np.zeros((32, 32, 1))
    point[16, 16] = 1
    weights = np.exp(-(np.arange(13) ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    across = corruptions._streaked(point, 6, 1.5, 0)[..., 0]
    assert across[16, 4:17][::-1] == pytest.approx(weights)
    assert across.sum() == pytest.approx(1)
    falling = corruptions._streaked(point, 6, 1.5, -90)[..., 0]  # snow: from each flake downwards
    assert falling[16:29, 16] == pytest.approx(weights)
    sloping = corruptions._streaked(point, 6, 1.5, 45)[..., 0]
    assert sloping[15, 15] == pytest.approx(weights[1] + weights[2])  # 0.7 and 1.4 pixels away are both nearest to 1
    edge = corruptions._streaked(np.ones((32, 32, 1)), 9, 2.5, 30)
    assert edge == pytest.approx(np.ones((32, 32, 1)))


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.06, 1.15, 1.25, 1.75, 2.25])
def test_zooming_equals_scipys_zoom_of_the_middle(factor, pictures):
    seen = int(np.ceil(32 / factor))
    first = (32 - seen) // 2
    middle = pictures[0, first : first + seen, first : first + seen].astype(float)
    whole = zoom(middle, (factor, factor, 1), order=1)
    cut = (len(whole) - 32) // 2
    expected = whole[cut : cut + 32, cut : cut + 32]
    assert corruptions._zoomed(pictures[:1].astype(float), factor)[0] == pytest.approx(expected)


def test_pixels_behind_glass_come_from_above_and_the_left_as_in_the_published_files(pictures):
    blurred = corrupt(pictures, "glass_blur", 1)  # its Gaussian is narrower than a pixel
    assert np.array_equal(blurred[:, :2], pictures[:, :2])
    assert np.array_equal(blurred[:, :, :2], pictures[:, :, :2])
    shifts = [pictures[:, 2 - up : 32 - up, 2 - left : 32 - left] for up in (0, 1) for left in (0, 1)]
    inner = blurred[:, 2:, 2:]
    same = [(inner == shifted).all(axis=-1) for shifted in shifts]
    assert np.logical_or.reduce(same).all()
    assert all(0.2 < part.mean() < 0.6 for part in same)


def test_pixelated_pictures_have_fewer_rows(pictures):
    for severity, rows in zip(SEVERITIES, (30, 28, 27, 24, 20), strict=True):
        picture = corrupt(pictures[:1], "pixelate", severity)[0]
        assert 1 + (picture[1:] != picture[:-1]).any(axis=(1, 2)).sum() == rows


def test_snow_and_fog_fall_differently_on_every_picture_and_lighten_dark_ones(pictures):
    dark = pictures // 4
    assert corrupt(dark, "snow", 3).mean() > dark.mean() + 10
    flakes = corrupt(np.zeros_like(GREY), "snow", 3).astype(float)
    down, across = (np.abs(np.diff(flakes, axis=axis)).mean() for axis in (1, 2))
    assert down < 0.8 * across  # they fall
    clouds = corruptions._plasma(3, 2.0, np.random.default_rng(0))
    assert clouds.min(axis=(1, 2)).tolist() == [0, 0, 0]
    assert clouds.max(axis=(1, 2)).tolist() == [1, 1, 1]
    neighbours = np.abs(np.diff(clouds, axis=1)).mean()
    assert neighbours < 0.3 * np.abs(clouds[:, :16] - clouds[:, 16:]).mean()  # clouds, not noise


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "rain"}, "corruption must be one of gaussian_noise, .*jpeg_compression; got 'rain'"),
        ({"severity": 0}, "severity must be a whole number >= 1, got 0"),
        ({"severity": 6}, "severity must be from 1 to 5, got 6"),
        ({"seed": -1}, "seed must be a whole number >= 0, got -1"),
        ({"images": GREY[:, :16]}, r"images must be uint8 of shape \(N, 32, 32, 3\), got uint8 \(40, 16, 32, 3\)"),
        ({"images": GREY / 255}, "images must be uint8 .* got float64"),
        ({"name": "frost"}, "corruption must not be frost, which adds photographs: put the published frost.npy"),
    ],
)
def test_a_mistake_is_named_in_one_line(arguments, message):
    arguments = {"images": GREY, "name": "fog", "severity": 1} | arguments
    with pytest.raises(ValueError, match=message) as caught:
        corrupt(**arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "module"), [("defocus_blur", "cv2"), ("brightness", "skimage.color"), ("glass_blur", "skimage.filters")]
)
def test_a_missing_package_says_what_to_install(name, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{name} needs {module} .*pip install 'mlrsnet-lab\[corruptions\]'"):
        corrupt(GREY[:1], name, 1)


# What is trained on, validated on and tested on

TRAIN, TEST = 300, 20  # pictures of the small CIFAR


@pytest.fixture
def root(tmp_path):
    """A small CIFAR-10 in which a picture's first two pixels tell which one it is."""
    random = np.random.default_rng(0)
    found = {}
    for part, count in (("train", TRAIN), ("test", TEST)):
        images = random.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        images[:, 0, 0, 0], images[:, 0, 0, 1] = np.divmod(np.arange(count), 256)
        found |= {f"x_{part}": images, f"y_{part}": np.arange(count) % 10}
    np.savez(tmp_path / "cifar10.npz", **found)
    return tmp_path


def publish(root, name="fog", **changes):
    """Files as distributed, in which every pixel of a picture is 10 times its severity, plus its number in blue."""
    folder = root / "CIFAR-10-C"
    folder.mkdir(exist_ok=True)
    images = np.repeat(np.arange(10, 60, 10, dtype=np.uint8), TEST)[:, None, None, None] * np.ones(
        (32, 32, 3), np.uint8
    )
    images[..., 2] += np.tile(np.arange(TEST, dtype=np.uint8), 5)[:, None, None]
    files = {name: images, "labels": np.tile(np.arange(TEST) % 10, 5).astype(np.uint8)} | changes
    for file, array in files.items():
        np.save(folder / f"{file}.npy", array)
    return root


def numbers(pictures):
    high, low = pictures.images[:, 0, 0, :2].long().unbind(dim=1)
    return (256 * high + low).tolist()


def test_the_published_files_are_read_as_distributed(root):
    task = load("cifar10-c", root=publish(root), corruption="fog")
    assert task.sizes == {"train": 100, "val": 100, "test": 200}
    assert (task.name, task.num_classes, task.shape, task.pad, task.flip) == ("cifar10-c", 10, (3, 32, 32), 4, True)
    found = {(int(image[5, 5, 0]), int(image[5, 5, 2]) - int(image[5, 5, 0])) for image in task.train.images}
    assert found == {(10 * severity, number) for severity in SEVERITIES for number in range(TEST)}
    of_blue = task.train.images[:, 5, 5, 2].int() - task.train.images[:, 5, 5, 0].int()
    assert (of_blue % 10 == task.train.labels).all()
    assert task.mean[:2] == (30, 30)  # of what is trained on
    assert task.note.startswith(
        "trained on cifar10's test pictures with fog at severities 1 to 5; validated and tested"
    )


def test_one_severity_is_its_block_of_the_file(root):
    task = load("cifar10-c", root=publish(root), corruption="fog", severity=4)
    assert task.sizes["train"] == TEST
    assert (task.train.images[..., 0] == 40).all()
    assert "fog at severity 4;" in task.note


def test_no_validation_picture_is_tested_on_and_both_are_clean_training_pictures(root):
    task = load("cifar10-c", root=publish(root), corruption="fog")
    assert sorted(numbers(task.val) + numbers(task.test)) == list(range(TRAIN))
    assert task.val.labels.bincount().tolist() == [10] * 10
    with np.load(root / "cifar10.npz") as file:
        for part in (task.val, task.test):
            assert np.array_equal(part.images.numpy(), file["x_train"][numbers(part)])
            assert np.array_equal(part.labels.numpy(), file["y_train"][numbers(part)])


def test_validation_pictures_are_the_same_for_every_corruption_and_ten_of_each_class_asked_for(root):
    publish(root), publish(root, "snow")
    one, other = (load("cifar10-c", root=root, corruption=name) for name in ("fog", "snow"))
    assert numbers(one.val) == numbers(other.val)
    few = load("cifar10-c", root=root, corruption="fog", classes=(7, 3))
    assert few.sizes == {"train": 20, "val": 20, "test": 40}
    assert few.val.labels.bincount().tolist() == [10, 10]
    assert {number % 10 for number, label in zip(numbers(few.test), few.test.labels, strict=True) if label == 0} == {7}
    assert load("cifar10-c", root=root, corruption="fog", val_size=50).sizes["test"] == 250
    assert load("cifar10-c", root=root, corruption="fog", fraction=0.5).sizes["train"] == 50


def test_generated_pictures_are_cifars_test_pictures_and_a_record_says_so(root):
    task = load("cifar10-c", root=root, corruption="contrast", severity=2, generate=True)
    with np.load(root / "cifar10.npz") as file:
        expected = corrupt(file["x_test"], "contrast", 2)
        found = {image.numpy().tobytes(): int(label) for image, label in zip(*vars(task.train).values(), strict=True)}
        assert found == {image.tobytes(): int(label) for image, label in zip(expected, file["y_test"], strict=True)}
    assert "contrast at severity 2, generated, not the published file;" in task.note
    assert load("cifar10-c", root=root, corruption="contrast", generate=True).sizes["train"] == 5 * TEST
    assert not (root / "CIFAR-10-C").exists()  # nothing that could be taken for the published file
    spec = RunSpec(
        task="cifar10-c",
        task_options={"corruption": "contrast", "severity": 2, "generate": True},
        model="small_cnn",
        model_options={"width": 2},
        epochs=1,
        batch_size=10,
    )
    assert (
        "generated, not the published file"
        in run(spec, settings=Settings(device="cpu", root=root)).data["task"]["note"]
    )


def test_generated_pictures_are_kept_and_found_again_unless_cifar_changes(root, monkeypatch):
    made = []

    def counted(*arguments, **options):
        made.append(arguments[1:3])
        return corrupt(*arguments, **options)

    monkeypatch.setattr("mlrsnet_lab.datasets.corruptions.corrupt", counted)
    options = CorruptedOptions(corruption="contrast", severity=2, generate=True)
    first, again = (corrupted.load("cifar10-c", root, options) for _ in range(2))
    assert made == [("contrast", 2)]
    assert first.train.images.equal(again.train.images)
    with np.load(root / "cifar10.npz") as file:
        arrays = dict(file)
    np.savez(root / "cifar10.npz", **arrays | {"x_test": 255 - arrays["x_test"]})
    corrupted.load("cifar10-c", root, options)
    assert len(made) == 2


def test_whether_the_data_is_there_is_known_without_corrupting_it(root, monkeypatch):
    monkeypatch.setattr("mlrsnet_lab.datasets.corruptions.corrupt", None)
    find("cifar10-c", root=root, corruption="fog", generate=True)
    find("cifar10-c", root=publish(root), corruption="fog")
    with pytest.raises(FileNotFoundError, match="snow"):
        find("cifar10-c", root=root, corruption="snow")
    with pytest.raises(FileNotFoundError, match="frost"):
        find("cifar10-c", root=root, corruption="frost", generate=True)


def test_the_published_file_is_never_replaced_by_a_generated_one(root):
    task = load("cifar10-c", root=publish(root), corruption="fog", severity=1, generate=True)
    assert (task.train.images[..., 0] == 10).all()
    assert "generated" not in task.note


def test_frost_cannot_be_generated_and_says_where_it_is_published(root):
    options = {"corruption": "frost", "severity": 1, "generate": True}
    with pytest.raises(FileNotFoundError, match=r"put frost.npy and labels.npy of zenodo.*frost cannot be generated"):
        load("cifar10-c", root=root, **options)


def test_a_missing_file_says_where_to_get_it_and_how_to_do_without(root):
    with pytest.raises(FileNotFoundError, match=r"put snow.npy and labels.npy of zenodo.org/records/2535967") as error:
        load("cifar10-c", root=publish(root), corruption="snow")
    message = str(error.value)
    assert f"{root / 'CIFAR-10-C'} (missing: snow.npy)" in message
    assert "generate=True" in message
    assert "\n" not in message
    with pytest.raises(FileNotFoundError, match=r"zenodo.org/records/3555552 into .*CIFAR-100-C"):
        load("cifar100-c", root=root)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fog": np.zeros((99, 32, 32, 3), np.uint8)}, r"fog.npy must be uint8 of shape \(5 N, 32, 32, 3\), got uint8"),
        ({"fog": np.zeros((100, 32, 32, 3))}, "fog.npy must be uint8 .* got float64"),
        ({"labels": np.zeros(20, np.uint8)}, "labels.npy must have one whole number for each of the 100 pictures"),
        ({"labels": np.arange(100) % 7}, "labels.npy must hold the same labels, 0 to 9, for each of the 5 severities"),
        ({"labels": np.arange(100) % 20}, "labels.npy must hold the same labels, 0 to 9"),
        ({"labels": np.array([None] * 100)}, "labels.npy is damaged or not an .npy file"),
    ],
)
def test_files_that_are_not_the_published_ones_are_refused(root, changes, message):
    with pytest.raises(ValueError, match=message) as error:
        load("cifar10-c", root=publish(root, **changes), corruption="fog")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corruption": "rain"}, "corruption must be one of gaussian_noise, .*; got 'rain'"),
        ({"severity": 6}, "severity must be from 1 to 5, got 6"),
        ({"severity": "3"}, "severity must be a whole number >= 1, got '3'"),
        ({"generate": "yes"}, "generate must be True or False, got 'yes'"),
        ({"leaky": True}, "cifar10-c has no option 'leaky'"),
    ],
)
def test_options_are_refused_before_any_data_is_read(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        load("cifar10-c", root=tmp_path, **options)


def test_more_validation_pictures_than_there_are_clean_ones_are_refused(root):
    with pytest.raises(ValueError, match=r"val_size must be less than 300, the number of clean pictures, got 300"):
        load("cifar10-c", root=publish(root), corruption="fog", val_size=300)


def test_the_random_state_of_a_users_program_is_left_alone(root):
    torch.manual_seed(3)
    np.random.seed(3)
    before, expected = torch.get_rng_state(), np.random.get_state()[1].copy()
    load("cifar10-c", root=root, corruption="shot_noise", generate=True)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], expected)


def test_digits_can_be_corrupted_without_any_download():
    task = load("digits-c", corruption="gaussian_noise", size=8)
    assert task.sizes == {"train": 5 * 300, "val": 100, "test": 1497 - 100}
    assert task.shape == (3, 8, 8)
    assert "generated" in task.note
    clean = load("digits-c", corruption="brightness", severity=1, size=8)
    assert clean.sizes["train"] == 300
    assert torch.equal(clean.test.images, task.test.images)
    with pytest.raises(ValueError, match="digits-c has no option 'generate'"):
        load("digits-c", generate=False)
