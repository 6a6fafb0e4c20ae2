"""Files from strangers in the lab: no memory is taken for what a file only claims, and nothing is written elsewhere."""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hostile import FILES, complaint, readers_of_their_own, with_two_directories
from PIL import Image

import mlrsnet_lab
from mlrsnet import cli
from mlrsnet_lab import records
from mlrsnet_lab.datasets import arrays, image_folder
from mlrsnet_lab.files import archives
from mlrsnet_lab.spec import RunSpec

RUN = {"format": 1, "status": "finished", "spec": {}}
READ_FILE = {
    "record.json": lambda path: records.read(path.parent),
    "runs.jsonl": records.unpack,
    "spec.json": RunSpec.from_file,
    "data.npz": lambda path: arrays.read(path, "data"),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("name", READ_FILE)
def test_a_file_that_holds_nothing_or_never_ends_is_refused_in_one_line(name, kind, tmp_path):
    FILES[kind](tmp_path / name)
    assert str(tmp_path) in complaint(READ_FILE[name], tmp_path / name)


@pytest.mark.parametrize(("text", "rule"), [("[" * 1000, "at most 64 levels deep"), ("[1", "delimiter")])
@pytest.mark.parametrize("name", ["record.json", "spec.json"])
def test_json_that_would_break_its_reader_ends_in_one_line(name, text, rule, tmp_path):
    (tmp_path / name).write_text(text)
    assert rule in complaint(READ_FILE[name], tmp_path / name)


def test_text_in_another_encoding_is_told_apart(tmp_path):
    (tmp_path / "spec.json").write_text('{"task": "digits"}', encoding="utf-16")
    assert "must be UTF-8 text, got invalid start byte at byte 0" in complaint(
        RunSpec.from_file, tmp_path / "spec.json"
    )


# Archives


def bomb(path, claimed, shape, content=b"\0" * 1000, kind=zipfile.ZIP_DEFLATED, dtype="|u1"):
    """An .npz whose x_train claims a size and a shape."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("x_train.npy", header.getvalue() + content)
    raw = bytearray(path.read_bytes())
    if claimed is not None:
        struct.pack_into("<L", raw, raw.index(b"PK\x01\x02") + 24, claimed)
    path.write_bytes(raw)
    return path


def test_an_array_that_claims_more_than_its_archive_can_hold_takes_no_memory(tmp_path):
    path = bomb(tmp_path / "data.npz", 2**32 - 2, (2**32 - 130,))
    assert "claims 4,294,967,294 bytes, but" in complaint(READ_FILE["data.npz"], path)


def test_a_header_that_claims_a_trillion_numbers_takes_no_memory(tmp_path):
    path = bomb(tmp_path / "data.npz", None, (10**12,), dtype="<f8")
    assert "must have 8,000,000,000,128 bytes, got 1,128" in complaint(READ_FILE["data.npz"], path)
    path = bomb(tmp_path / "data.npz", None, (-(10**6), -(10**6)))
    assert "must have" in complaint(READ_FILE["data.npz"], path)


def test_arrays_that_fit_into_no_memory_are_refused_before_they_are_unpacked(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "data.npz", x_train=np.zeros((4, 2**20), np.uint8))
    monkeypatch.setattr(archives, "memory", lambda: 2**21)
    assert "must fit into memory, 2,097,152 bytes, got 4,194,432" in complaint(
        READ_FILE["data.npz"], tmp_path / "data.npz"
    )


def test_ones_own_data_that_compresses_a_thousand_times_is_read(tmp_path):
    images = np.zeros((40, 512, 512), np.uint8)
    labels = np.arange(40) % 2
    np.savez_compressed(tmp_path / "d.npz", x_train=images, y_train=labels, x_test=images[:2], y_test=labels[:2])
    assert (tmp_path / "d.npz").stat().st_size < images.nbytes / 500
    assert arrays.read(tmp_path / "d.npz", "d").train.images.shape == (40, 512, 512, 1)


def test_what_nobody_asked_for_in_an_archive_is_not_even_looked_at(tmp_path):
    images, labels = np.zeros((4, 2, 2), np.uint8), np.arange(4) % 2
    np.savez(tmp_path / "d.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    with zipfile.ZipFile(tmp_path / "d.npz", "a") as archive:
        archive.writestr("bomb.npy", pickle.dumps(object()))
        archive.writestr("../../escape.npy", b"")
    assert arrays.read(tmp_path / "d.npz", "d").num_classes == 2
    assert [path.name for path in tmp_path.iterdir()] == ["d.npz"]


def test_a_compression_without_a_limit_is_refused(tmp_path):
    path = bomb(tmp_path / "data.npz", None, (1000,), kind=zipfile.ZIP_LZMA)
    assert "must be stored or deflated" in complaint(READ_FILE["data.npz"], path)


def test_an_archive_with_two_directories_is_refused_because_readers_disagree_on_it(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.ones(2))
    assert "its directory must end at byte" in complaint(archives.load_arrays, with_two_directories(tmp_path / "a.npz"))


# Pictures


def picture(path, size=(4, 4), kind="PNG"):
    Image.new("1", size).save(path, kind)
    return str(path)


def shown(path):
    return image_folder._Reader(((path, 0),), 8, None)[0]


def test_a_picture_that_unpacks_to_gigabytes_is_refused(tmp_path):
    Image.new("1", (10_000, 10_000)).save(tmp_path / "bomb.png")
    assert (tmp_path / "bomb.png").stat().st_size < 20_000
    assert "cannot be read as a picture (Image size (100000000 pixels) exceeds limit" in shown(
        str(tmp_path / "bomb.png")
    )


def test_the_middle_of_a_thread_is_not_enlarged_to_gigabytes(tmp_path):
    pixels, label = shown(picture(tmp_path / "thread.png", (1_000_000, 1)))
    assert pixels.shape == (8, 8, 3)
    assert label == 0


def test_a_program_in_postscript_is_no_picture_whatever_its_name(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "p.png", "EPS")
    assert "cannot identify image file" in shown(str(tmp_path / "p.png"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes with names")
def test_a_pipe_among_pictures_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "p.png")
    assert "must be a plain file" in shown(str(tmp_path / "p.png"))


def test_an_ordinary_picture_is_read_from_every_format(tmp_path):
    for kind in image_folder.FORMATS:
        assert shown(picture(tmp_path / f"{kind}.png", kind=kind))[0].shape == (8, 8, 3)


# Packs


@pytest.mark.parametrize("place", ["../up", "/tmp/up", "a/../../up", "a//b", "./a", "", "a\0b", "a\nb", 3, None])
def test_a_pack_writes_below_its_own_folder_only(place, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "runs.jsonl").write_text(json.dumps({"folder": place, "record": RUN}) + "\n")
    assert "is damaged, or repeats a run" in complaint(records.unpack, folder / "runs.jsonl")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "runs.jsonl"]


def test_a_pack_does_not_write_through_a_link_that_came_with_it(tmp_path):
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "link").symlink_to(elsewhere)
    (folder / "runs.jsonl").write_text(json.dumps({"folder": "link/0", "record": RUN}) + "\n")
    assert "got a link that leaves it: remove the link" in complaint(records.unpack, folder / "runs.jsonl")
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("part", [{"epochs": "none"}, {"epochs": {}}, {"trace": [1]}])
def test_epochs_and_traces_of_another_kind_are_no_run(part, tmp_path):
    (tmp_path / "runs.jsonl").write_text(json.dumps({"folder": "a", "record": RUN, **part}) + "\n")
    assert "no list of epochs, or no trace" in complaint(records.read, tmp_path / "a")


def test_words_in_a_record_do_not_steer_the_terminal(tmp_path, capsys):
    evil = "a\x1b]0;title\x07\x1b[2Jb"
    record = {**RUN, "status": evil, "labels": 3, "error": evil, "metric": "x"}
    (tmp_path / "record.json").write_text(json.dumps(record))
    for action in ("show", "list"):
        assert cli.main(["runs", action, str(tmp_path)]) == 0
    (tmp_path / "record.json").write_text(json.dumps({**RUN, "format": evil}))
    assert cli.main(["runs", "show", str(tmp_path)]) == 2
    assert "".join(capsys.readouterr()).replace("\n", "").isprintable()


def test_no_module_reads_files_past_these_checks():
    """What is left writes, parses what the package itself made, or reads what a command line holds."""
    assert readers_of_their_own(Path(mlrsnet_lab.__file__).parent) == {
        "campaign.py",  # options that are in memory
        "commands/train.py",  # a value on the command line
        "datasets/corruptions.py",  # a picture that was just made
        "datasets/image_folder.py",
        "datasets/npm.py",  # an archive, for its digest
        "files/archives.py",  # the system's own file about memory
        "executors/work.py",  # whether an error can travel
        "report/page.py",  # the package's own style
        "spec.py",  # a copy of what is in memory
    }
