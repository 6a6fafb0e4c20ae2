"""Files from strangers: nothing runs, no memory is taken for what a file only claims, nothing is written elsewhere."""

import json
import re
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from hostile import FILES, complaint, readers_of_their_own, with_two_directories
from safetensors.torch import save_file

import mlrsnet
from mlrsnet import Schedule, cli
from mlrsnet.card import Card
from mlrsnet.files import checkpoints, official, untrusted
from mlrsnet.files.storage import ScheduleError
from mlrsnet.nets import LSTMNet

READ_FILE = {"m.pth": Schedule.from_official, "s.safetensors": Schedule.load}
EVIL = "a\x1b]0;title\x07\x1b[2Jb"
"""Would change the terminal's title, and clear it."""


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("name", READ_FILE)
def test_a_file_that_holds_nothing_or_never_ends_is_refused_in_one_line(name, kind, tmp_path):
    FILES[kind](tmp_path / name)
    assert str(tmp_path) in complaint(READ_FILE[name], tmp_path / name)


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
def test_json_that_would_break_its_reader_is_refused_by_a_rule(text, rule):
    with pytest.raises(ValueError, match=re.escape(rule)):
        untrusted.parse_json(text)


def test_json_as_deep_and_as_precise_as_anyone_writes_is_read():
    value = [1, -0.1, 1e300, 10**300, None, True, "ü"]
    for _ in range(untrusted.MOST_LEVELS - 1):
        value = [value]
    assert untrusted.parse_json(json.dumps(value)) == value


# Checkpoints


def test_a_checkpoint_with_two_directories_is_refused_because_readers_disagree_on_it(tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt")
    assert "with one directory" in complaint(checkpoints.load, with_two_directories(tmp_path / "a.pt"))


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


def test_a_message_is_one_short_line_whatever_a_file_holds():
    told = untrusted.reason(ValueError("a\x1b[2J\n" + "b" * 10_000))
    assert told.isprintable()
    assert len(told) == untrusted.LONGEST_REASON
    assert untrusted.reason(ValueError()) == "ValueError"


def test_words_in_a_file_do_not_steer_the_terminal(tmp_path, capsys):
    card = Card(name=EVIL, description=f"{EVIL}\nsecond line", learned_on=EVIL)
    Schedule(LSTMNet(2), card).save(tmp_path / "s.safetensors")
    assert cli.main(["schedules", "show", str(tmp_path / "s.safetensors")]) == 0
    told = "".join(capsys.readouterr())
    assert "second line" in told
    assert told.replace("\n", "").isprintable()


def test_a_bad_record_of_the_authors_is_refused_by_name(tmp_path):
    torch.save(authors(surprise=torch.ones(1)), tmp_path / "m.pth")
    with pytest.raises(ScheduleError, match=r"must hold the authors' tensors .*, got .*surprise"):
        Schedule.from_official(tmp_path / "m.pth")


def test_no_module_reads_files_past_these_checks():
    assert readers_of_their_own(Path(mlrsnet.__file__).parent) == {"files/checkpoints.py", "files/untrusted.py"}
