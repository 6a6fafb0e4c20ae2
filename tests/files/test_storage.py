import json
import os
import pickle
import struct

import pytest
import torch
from safetensors.torch import save_file

from mlrsnet import Schedule
from mlrsnet.card import Card
from mlrsnet.files import storage
from mlrsnet.files.storage import ScheduleError
from mlrsnet.nets import LSTMNet


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(0)
    path = tmp_path / "s.safetensors"
    Schedule([LSTMNet(4), LSTMNet(4)]).save(path)
    return path


def edit_header(path, change):
    """Rewrite the JSON header in place, as a text editor could."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    own = json.loads(header["__metadata__"]["mlrsnet"])
    change(own)
    header["__metadata__"]["mlrsnet"] = json.dumps(own)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])


def test_a_truncated_file_is_one_clear_error(saved):
    raw = saved.read_bytes()
    for size in (0, 1, 7, 8, 20, len(raw) // 2, len(raw) - 1):
        saved.write_bytes(raw[:size])
        with pytest.raises(ScheduleError, match=r"is damaged or not a safetensors file .*: copy it again"):
            Schedule.load(saved)


def test_a_changed_byte_anywhere_is_noticed(saved):
    raw = saved.read_bytes()
    for place in range(8, len(raw), 13):
        changed = bytearray(raw)
        changed[place] ^= 0x01
        saved.write_bytes(bytes(changed))
        with pytest.raises(ScheduleError):
            Schedule.load(saved)


def test_changed_weights_or_card_do_not_match_the_digest(saved):
    raw = bytearray(saved.read_bytes())
    raw[-2] ^= 0x01
    saved.write_bytes(bytes(raw))
    with pytest.raises(ScheduleError, match="was changed after it was saved"):
        Schedule.load(saved)


def test_a_changed_card_does_not_match_the_digest(saved):
    edit_header(saved, lambda own: own["description"]["card"].update(name="famous"))
    with pytest.raises(ScheduleError, match="was changed after it was saved"):
        Schedule.load(saved)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("write", [torch.save, lambda thing, path: path.write_bytes(pickle.dumps(thing))])
@pytest.mark.parametrize("reader", [Schedule.load, Schedule.from_official])
def test_a_pickle_is_refused_and_nothing_in_it_runs(tmp_path, monkeypatch, write, reader):
    monkeypatch.chdir(tmp_path)
    write(Bomb(), tmp_path / "s.safetensors")
    with pytest.raises(
        ScheduleError, match=r"was not opened, because reading one can run code|nothing in it was executed"
    ):
        reader(tmp_path / "s.safetensors")
    assert not (tmp_path / "executed").exists()


def test_a_damaged_checkpoint_is_one_clear_error(tmp_path):
    torch.save({"layer3.weight": torch.ones(3, 5)}, tmp_path / "a.pth")
    raw = (tmp_path / "a.pth").read_bytes()
    for place in range(0, len(raw), 23):
        changed = bytearray(raw)
        changed[place] ^= 0x15
        (tmp_path / "a.pth").write_bytes(bytes(changed))
        with pytest.raises(ScheduleError):
            Schedule.from_official(tmp_path / "a.pth")


def test_a_foreign_file_is_told_apart(tmp_path):
    save_file({"weight": torch.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(ScheduleError, match="is a safetensors file but not a schedule"):
        Schedule.load(tmp_path / "model.safetensors")
    (tmp_path / "notes.txt").write_text("0.1, 0.01, 0.001")
    with pytest.raises(ScheduleError, match="is damaged or not a safetensors file"):
        Schedule.load(tmp_path / "notes.txt")
    with pytest.raises(ScheduleError, match="there is no schedule file"):
        Schedule.load(tmp_path / "none.safetensors")
    with pytest.raises(ScheduleError, match="there is no schedule file"):
        Schedule.load(tmp_path)


def test_a_newer_format_asks_for_an_upgrade(saved):
    edit_header(saved, lambda own: own.update(version=2))
    with pytest.raises(ScheduleError, match="has format version 2, this mlrsnet reads 1"):
        Schedule.load(saved)


def test_a_file_far_too_large_is_not_read(saved, monkeypatch):
    monkeypatch.setattr(storage, "LARGEST_FILE", 100)
    with pytest.raises(ScheduleError, match="a schedule has at most 100"):
        Schedule.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda d, t: d["net"].update(hidden_size=5),
        lambda d, t: d["net"].update(hidden_size=10**12),
        lambda d, t: d["net"].update(num_layers=10**9),
        lambda d, t: d["net"].update(kind="os.system"),
        lambda d, t: d["net"].update(surprise=1),
        lambda d, t: d.update(net=[]),
        lambda d, t: d["net"].update(sharpness=10**400),
        lambda d, t: d["card"].update(versions=None),
        lambda d, t: t.update({"0.out.bias": t.pop("phase0.out.bias")}),
        lambda d, t: t.update({"phase0.out.bias": torch.ones(1, dtype=torch.complex64)}),
        lambda d, t: d.pop("card"),
        lambda d, t: d["card"].update(surprise=1),
        lambda d, t: d["card"]["gamma"].update(policy="best"),
        lambda d, t: t.pop("phase1.out.bias"),
        lambda d, t: t.update({"phase3.out.bias": torch.ones(1)}),
        lambda d, t: t.update({"other": torch.ones(1)}),
        lambda d, t: t.update({"phase0.out.bias": torch.tensor([float("nan")])}),
        lambda d, t: t.update({"phase0.out.bias": torch.ones(2)}),
        lambda d, t: t.clear(),
    ],
)
def test_a_schedule_that_does_not_fit_together_is_one_clear_error(saved, change):
    description, tensors = storage.read(saved)
    change(description, tensors)
    storage.write(saved, description, tensors)
    with pytest.raises(ScheduleError, match=r"s\.safetensors does not hold a valid schedule"):
        Schedule.load(saved)


def test_an_interrupted_save_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def full_disk(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        Schedule(LSTMNet(4)).save(saved)
    assert saved.read_bytes() == before
    assert [file.name for file in saved.parent.iterdir()] == [saved.name]


def test_a_header_of_any_length_is_not_taken_for_a_pickle(tmp_path):
    net = LSTMNet(2)
    lengths = set()
    for extra in range(0, 260, 4):  # the first byte of the length also takes the value that marks a pickle
        path = tmp_path / f"{extra}.safetensors"
        Schedule(net, Card(name="x" * extra)).save(path)
        lengths.add(path.read_bytes()[0])
        assert Schedule.load(path).card.name == "x" * extra
    assert 0x80 in lengths


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_others_may_read_a_schedule_where_they_may_read_ones_other_files(tmp_path, mask):
    before = os.umask(mask)
    try:
        Schedule(LSTMNet(2)).save(tmp_path / "s.safetensors")
    finally:
        os.umask(before)
    assert (tmp_path / "s.safetensors").stat().st_mode & 0o777 == 0o666 & ~mask


def test_saving_twice_gives_the_same_bytes(saved, tmp_path):
    Schedule.load(saved).save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == saved.read_bytes()
