"""Files from strangers: nothing runs, no memory is taken for what a file only claims, nothing is written elsewhere."""

import io
import json
import os
import pickle
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import mlrsnet
from mlrsnet import Schedule, cli
from mlrsnet.card import Card
from mlrsnet.files import checkpoints, official, untrusted
from mlrsnet.files.storage import ScheduleError
from mlrsnet.nets import LSTMNet
from mlrsnet_lab import records
from mlrsnet_lab.datasets import arrays, image_folder, picture_file
from mlrsnet_lab.files import archives
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.table.file import Table

RUN = {"format": 1, "status": "finished", "spec": {}}
READ_FILE = {
    "record.json": lambda path: records.read(path.parent),
    "runs.jsonl": records.unpack,
    "spec.json": RunSpec.from_file,
    "table.npz": Table.load,
    "data.npz": lambda path: arrays.read(path, "data"),
    "m.pth": Schedule.from_official,
    "s.safetensors": Schedule.load,
}


def complaint(read, path):
    """The one line that a reader refuses a file with."""
    with pytest.raises((ValueError, OSError)) as found:
        read(path)
    message = str(found.value)
    assert message.isprintable()
    assert len(message) < 1000
    return message


@pytest.mark.parametrize("name", READ_FILE)
def test_an_empty_file_is_told_in_one_line(name, tmp_path):
    (tmp_path / name).touch()
    assert str(tmp_path) in complaint(READ_FILE[name], tmp_path / name)


@pytest.mark.parametrize("name", READ_FILE)
def test_a_file_of_many_gigabytes_of_nothing_is_not_read(name, tmp_path):
    with open(tmp_path / name, "wb") as file:
        file.truncate(200 * 2**30)  # takes no room on the disk
    assert str(tmp_path) in complaint(READ_FILE[name], tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes with names")
@pytest.mark.parametrize("name", READ_FILE)
def test_a_pipe_or_a_device_that_never_ends_is_not_waited_for(name, tmp_path):
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
        make(tmp_path / name)
        complaint(READ_FILE[name], tmp_path / name)
        (tmp_path / name).unlink()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[" * 1000 + "]" * 1000, "at most 64 levels deep"),
        ("[" * 100_000, "at most 64 levels deep"),
        ('{"a":' * 65 + "{}" + "}" * 65, "at most 64 levels deep"),
        ("NaN", "numbers must be finite, got NaN"),
        ('{"lr": [1e400]}', "numbers must be finite, got 1e400"),
        ("-Infinity", "numbers must be finite, got -Infinity"),
        ("9" * 100_000, "at most 308 digits, got one of 100,000"),
        ("[1", "delimiter"),
    ],
)
def test_json_that_would_break_its_reader_ends_in_one_line(text, rule, tmp_path):
    (tmp_path / "spec.json").write_text(text)
    (tmp_path / "record.json").write_text(text)
    assert rule in complaint(RunSpec.from_file, tmp_path / "spec.json")
    assert rule in complaint(lambda path: records.read(path.parent), tmp_path / "record.json") or "finite" in rule


def test_json_as_deep_and_as_precise_as_anyone_writes_is_read():
    value = [1, -0.1, 1e300, 10**300, None, True, "ü"]
    for _ in range(untrusted.MOST_LEVELS - 1):
        value = [value]
    assert untrusted.parse_json(json.dumps(value)) == value


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
    def double(path):
        raw = path.read_bytes()
        end = raw.rindex(b"PK\x05\x06")
        (length,) = struct.unpack("<L", raw[end + 12 : end + 16])
        path.write_bytes(raw[:end] + raw[end - length : end] + raw[end:])
        return path

    np.savez(tmp_path / "a.npz", a=np.ones(2))
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt")
    assert "its directory must end at byte" in complaint(archives.load_arrays, double(tmp_path / "a.npz"))
    assert "with one directory" in complaint(checkpoints.load, double(tmp_path / "a.pt"))


# Checkpoints


def rewrite(path, change, kind=zipfile.ZIP_STORED):
    """Replace the pickle of a checkpoint."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, change(content) if name.endswith("data.pkl") else content)
    return path


@pytest.fixture
def saved(tmp_path):
    torch.save({"a": torch.arange(4.0)}, tmp_path / "a.pt")
    return tmp_path / "a.pt"


MANY = b"\x8a\x08" + (10**13).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (b"c__builtin__\nbytearray\n(" + MANY + b"tR.", "__builtin__ bytearray"),
        (b"ctorch\nTensor\n(" + MANY + b"tR.", "torch Tensor"),
        (b"ctorch\nFloatTensor\n(" + MANY + b"t\x81.", "torch FloatTensor"),
        (b"ctorch.storage\nUntypedStorage\n(" + MANY + b"tR.", "torch.storage UntypedStorage"),
        (b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR.", "_codecs encode"),
        (b"cos\nsystem\n(X\x0e\x00\x00\x00touch executedtR.", "os system"),
    ],
)
def test_a_checkpoint_calls_nothing_but_what_builds_tensors(saved, call, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rewrite(saved, lambda content: b"\x80\x02" + call)
    assert f"got a call of {name}" in complaint(checkpoints.load, saved)
    assert not (tmp_path / "executed").exists()


def test_a_tensor_that_claims_more_numbers_than_it_has_is_refused_before_they_are_read(saved):
    """Some versions of torch would read the memory behind them."""
    rewrite(saved, lambda content: content.replace(b"K\x04t", b"M\x00\x10t").replace(b"K\x04\x85", b"M\x00\x10\x85"))
    assert "of 4,096 elements must have 16,384 bytes, got 16" in complaint(checkpoints.load, saved)


def test_a_tensor_whose_place_is_written_in_another_way_is_refused(saved):
    rewrite(saved, lambda content: content.replace(b"K\x04t", b"K\x04q\x63h\x63t"))
    assert "as torch.save does, got another form" in complaint(checkpoints.load, saved)


def test_a_compressed_checkpoint_is_refused(saved):
    rewrite(saved, lambda content: content, zipfile.ZIP_DEFLATED)
    assert "must not be compressed" in complaint(checkpoints.load, saved)


def test_a_tensor_that_repeats_one_number_without_end_is_refused(tmp_path):
    torch.save(torch.zeros(1).expand(10**12), tmp_path / "a.pt")
    assert "a tensor must have at most the file's" in complaint(checkpoints.load, tmp_path / "a.pt")


def test_lists_that_repeat_each_other_without_end_are_refused(tmp_path):
    value = [0]
    for _ in range(30):
        value = [value] * 10
    torch.save(value, tmp_path / "a.pt")
    assert "must hold at most 10,000,000 values" in complaint(checkpoints.load, tmp_path / "a.pt")


def test_tensors_of_all_kinds_that_trainings_save_are_read(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    shared = torch.arange(5.0)
    value = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "kinds": [torch.ones(2, dtype=kind) for kind in (torch.bfloat16, torch.float64, torch.bool, torch.int32)],
        "random": torch.get_rng_state(),
        "plain": [1, 0.5, "text", None, True, (1, 2), {3: 4}, 10**20],
        "types": (torch.float32, torch.Size([2]), torch.device("cpu"), torch.nn.Parameter(torch.ones(1))),
        "view": torch.zeros(3).expand(2, 3),
        "shared": [shared, shared[1:], shared.clone(), shared[:0], torch.empty(0)],
    }
    torch.save(value, tmp_path / "a.pt")
    found = checkpoints.load(tmp_path / "a.pt")
    assert found["plain"] == value["plain"]
    assert found["types"] == value["types"]
    torch.testing.assert_close(found["shared"], value["shared"])
    torch.testing.assert_close(found["kinds"], value["kinds"])
    torch.testing.assert_close(found["optimizer"]["state"], value["optimizer"]["state"])


def authors(hidden=2, **changes):
    net = LSTMNet(hidden, layout="official-test").state_dict()
    return {theirs: net[ours].clone() for theirs, ours in official.KEYS.items()} | changes


def test_the_old_format_takes_no_memory_for_what_it_claims(tmp_path):
    path = tmp_path / "m.pth"
    torch.save({"a": torch.arange(4.0)}, path, _use_new_zipfile_serialization=False)
    raw = path.read_bytes()
    many = b"\x8a\x05" + (10**11).to_bytes(5, "little")
    assert b"K\x04N" in raw
    path.write_bytes(raw.replace(b"K\x04N", many + b"N"))
    assert "got 100,000,000,000" in complaint(Schedule.from_official, path)
    path.write_bytes(raw.replace(b"X\x01\x00\x00\x00a", b"X\xff\xff\xff\x7fa"))
    assert "nothing in it was executed" in complaint(Schedule.from_official, path)


def test_a_wide_layer_in_the_authors_file_does_not_build_a_wide_network(tmp_path):
    torch.save(authors(**{"layer3.weight": torch.zeros(1, 200_000)}), tmp_path / "m.pth")
    assert "does not fit the layout" in complaint(Schedule.from_official, tmp_path / "m.pth")


# Schedules


def test_a_schedule_whose_header_claims_an_exabyte_is_refused(tmp_path):
    (tmp_path / "s.safetensors").write_bytes(struct.pack("<Q", 2**60) + b'{"a": 1}')
    assert "claims a header of 1,152,921,504,606,846,976 bytes" in complaint(Schedule.load, tmp_path / "s.safetensors")


def test_a_schedule_of_ten_thousands_of_tensors_is_refused(tmp_path):
    save_file({str(i): torch.zeros(0) for i in range(10_001)}, tmp_path / "s.safetensors")
    assert "at most 10,000 tensors, got 10,001" in complaint(Schedule.load, tmp_path / "s.safetensors")


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
    for kind in picture_file.FORMATS:
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


def test_a_message_is_one_short_line_whatever_a_file_holds():
    told = untrusted.reason(ValueError("a\x1b[2J\n" + "b" * 10_000))
    assert told.isprintable()
    assert len(told) == untrusted.LONGEST_REASON
    assert untrusted.reason(ValueError()) == "ValueError"


def test_words_in_a_file_do_not_steer_the_terminal(tmp_path, capsys):
    evil = "a\x1b]0;title\x07\x1b[2Jb"
    Schedule(LSTMNet(2), Card(name=evil, description=f"{evil}\nsecond line", learned_on=evil)).save(
        tmp_path / "s.safetensors"
    )
    (tmp_path / "record.json").write_text(
        json.dumps({**RUN, "status": evil, "labels": 3, "error": evil, "metric": "x"})
    )
    for words in (
        ["schedules", "show", tmp_path / "s.safetensors"],
        ["runs", "show", tmp_path],
        ["runs", "list", tmp_path],
    ):
        assert cli.main(list(map(str, words))) == 0
    (tmp_path / "record.json").write_text(json.dumps({**RUN, "format": evil}))
    assert cli.main(["runs", "show", str(tmp_path)]) == 2
    told = "".join(capsys.readouterr())
    assert "second line" in told
    assert told.replace("\n", "").isprintable()


def test_a_bad_record_of_the_authors_is_refused_by_name(tmp_path):
    torch.save(authors(surprise=torch.ones(1)), tmp_path / "m.pth")
    with pytest.raises(ScheduleError, match=r"must hold the authors' tensors .*, got .*surprise"):
        Schedule.from_official(tmp_path / "m.pth")


def test_no_module_reads_files_past_these_checks():
    """What is left writes, parses what the package itself made, or reads what a command line holds."""
    loads = r"(torch|np|json|pickle)\.loads?\("
    unchecked = re.compile(loads + r"|tarfile\.open\(|ZipFile\(|(?i:image.*\.open\b)|imread|\.read_(text|bytes)\(")
    package = Path(mlrsnet.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(unchecked.search(line.partition("#")[0]) and '"""' not in line for line in path.read_text().splitlines())
    }
    assert found == {
        "files/checkpoints.py",
        "files/untrusted.py",
        "lab/commands/train.py",  # a value on the command line
        "lab/datasets/corruptions.py",  # a picture that was just made
        "lab/datasets/picture_file.py",
        "lab/datasets/shards.py",  # places in a tar file that are read as pictures, and an index that the package made
        "lab/files/archives.py",  # the system's own file about memory
        "lab/executors/work.py",  # whether an error can travel
        "lab/report/page.py",  # the package's own style
        "lab/spec.py",  # a copy of what is in memory
    }
