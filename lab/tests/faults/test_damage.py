"""A truncated file, or one with a flipped bit: noticed, named, and the one before it or its copy is used."""

import json
import os
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import Stop, assert_same, tiny

from mlrsnet import Schedule
from mlrsnet.files.writing import copy_of
from mlrsnet_lab import checkpoint, meta_training, records
from mlrsnet_lab.files import seals
from mlrsnet_lab.files.fallback import previous
from mlrsnet_lab.loop import run
from mlrsnet_lab.meta_specs import HorizonSpec
from mlrsnet_lab.meta_training import learn
from mlrsnet_lab.settings import Settings
from tools.damage import measure

HORIZON = HorizonSpec(task_options={"classes": [0, 1]}, generations=2, tasks=1, members=2, hidden=4, held_out=1)
SPEC = tiny(schedule="mlr-snet", schedule_options={"every": 10, "hidden": 4})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that ended, whose files nobody has touched."""
    folder = tmp_path_factory.mktemp("whole")
    run(SPEC, folder, Settings(device="cpu"))
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped when it had two checkpoints."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.raises(KeyboardInterrupt):
        run(SPEC, folder, Settings(device="cpu", checkpoint_seconds=0), watchers=[Stop()])
    assert previous(folder / records.CHECKPOINT).is_file()
    return folder


@pytest.fixture
def copied(tmp_path):
    """A function that copies a folder, so that a test may damage it."""
    return lambda folder: shutil.copytree(folder, tmp_path / "copied")


def flip(path, place=0.5, bit=3):
    raw = bytearray(path.read_bytes())
    raw[int(place * len(raw))] ^= 1 << bit
    path.write_bytes(raw)


def cut(path, share=0.5):
    raw = path.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])


def empty(path):
    cut(path, 0)


DAMAGES = pytest.mark.parametrize("damage", [flip, cut, empty], ids=lambda damage: damage.__name__)


def comparable(folder):
    return records.read(folder).comparable()


def test_no_damage_is_read_as_something_else_without_a_word():
    found = measure(times=25, seed=1)
    assert [line["lab"]["other"] for line in found.values()] == [0, 0, 0]
    assert found["checkpoint"]["alone"]["other"] > 5  # torch alone would not have noticed


# Checkpoints


@DAMAGES
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_ends_in_the_same_bits(damage, stopped, whole, copied):
    folder = copied(stopped)
    damage(folder / records.CHECKPOINT)
    with pytest.warns(
        UserWarning, match=r"checkpoint.pt \(.*\) is damaged; going on from the one before, .*previous.pt"
    ):
        run(SPEC, folder, Settings(device="cpu"))
    assert_same(comparable(folder), comparable(whole))
    for name in (records.SCHEDULE, records.TRACE):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert {path.name for path in folder.iterdir()} == {path.name for path in whole.iterdir()}


def test_two_damaged_checkpoints_are_both_named_with_what_to_do(stopped, copied):
    folder = copied(stopped)
    for path in (folder / records.CHECKPOINT, previous(folder / records.CHECKPOINT)):
        flip(path)
    with pytest.raises(
        ValueError, match=r"neither .*checkpoint.pt nor .*checkpoint.previous.pt is a checkpoint .*delete both"
    ):
        run(SPEC, folder, Settings(device="cpu"))


@settings(max_examples=40)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_flipped_bit_changes_what_is_read_from_a_sealed_file(place, bit, stopped, tmp_path_factory):
    good, bad = stopped / records.CHECKPOINT, tmp_path_factory.mktemp("bad") / "checkpoint.pt"
    shutil.copy(good, bad)
    flip(bad, place, bit)
    if int(place * good.stat().st_size) < good.stat().st_size - seals.LENGTH:
        with pytest.raises(seals.BrokenSealError, match="its digest does not match"):
            seals.check(bad)
    else:  # in the seal itself: the content is whole, and if the seal is no longer seen as one it is read
        assert not seals.is_intact(bad)


def test_a_damaged_checkpoint_does_not_take_the_place_of_the_good_one_before_it(stopped, copied):
    folder = copied(stopped)
    good = previous(folder / records.CHECKPOINT).read_bytes()
    flip(folder / records.CHECKPOINT)
    checkpoint.write(folder, {"spec": 1})
    assert previous(folder / records.CHECKPOINT).read_bytes() == good
    checkpoint.write(folder, {"spec": 2})
    assert torch.load(previous(folder / records.CHECKPOINT))["spec"] == 1


def test_checkpoints_of_another_run_are_both_named(stopped, copied):
    folder = copied(stopped)
    (folder / records.RECORD).unlink()
    with pytest.raises(
        ValueError, match=r"neither .*checkpoint.pt nor .*previous.pt is a checkpoint .*\(ValueError: .+\): delete both"
    ):
        run(tiny(seed=6), folder, Settings(device="cpu"))


def test_a_kill_while_the_checkpoint_before_is_kept_leaves_nothing_for_ever(tmp_path):
    """Then both names are of one file, and a rename of one to the other would do nothing."""
    path = tmp_path / records.CHECKPOINT
    checkpoint.write(tmp_path, {"spec": 1})
    os.link(path, previous(path))
    checkpoint.write(tmp_path, {"spec": 2})
    assert sorted(tmp_path.iterdir()) == [previous(path), path]
    assert [torch.load(file)["spec"] for file in (previous(path), path)] == [1, 2]


def test_a_sealed_file_is_read_by_torch_and_one_without_a_seal_by_the_lab(stopped, copied):
    folder = copied(stopped)
    state = torch.load(folder / records.CHECKPOINT, weights_only=True)
    torch.save(state, folder / records.CHECKPOINT)  # as earlier versions wrote it
    assert checkpoint.read(folder)["training"]["step"] == state["training"]["step"]


# Records


@pytest.mark.parametrize("name", [records.RECORD, records.EPOCHS, records.TRACE])
@pytest.mark.parametrize("when", ["stopped", "whole"])
@DAMAGES
def test_a_damaged_record_is_named_and_read_from_its_copy(damage, when, name, request, copied, whole):
    folder = copied(request.getfixturevalue(when))
    before = comparable(folder)
    damage(folder / name)
    with pytest.warns(
        UserWarning, match=rf"{name} changed after being saved; going on with the copy in record.copy.json"
    ):
        assert comparable(folder) == before
    if damage is flip:  # once for each file: it trains
        with pytest.warns(UserWarning, match="changed after being saved"):
            run(SPEC, folder, Settings(device="cpu"))
        assert_same(comparable(folder), comparable(whole))


@DAMAGES
def test_a_damaged_copy_is_named_and_the_record_itself_is_read(damage, whole, copied):
    folder = copied(whole)
    damage(folder / records.COPY)
    with pytest.warns(UserWarning, match="record.copy.json is damaged; the files beside it are read as they are"):
        assert comparable(folder) == comparable(whole)


def test_a_kill_between_the_files_of_a_record_is_no_damage(stopped, whole, copied):
    """The copy is written first; the others may still be those of before."""
    folder = copied(stopped)
    before = {name: (folder / name).read_bytes() for name in (records.RECORD, records.EPOCHS, records.TRACE)}
    record = records.read(folder)
    record.data["labels"] = {"row": "new"}
    records.write(record)
    (folder / records.RECORD).write_bytes(before[records.RECORD])
    assert records.read(folder).data["labels"] == {"row": "new"}  # no warning: they are errors here


def test_what_a_kill_after_the_end_left_is_removed_when_the_run_is_asked_for_again(stopped, whole, copied):
    folder = copied(whole)
    shutil.copy(stopped / records.CHECKPOINT, folder)
    shutil.copy(stopped / records.CHECKPOINT, previous(folder / records.CHECKPOINT))
    (folder / ".epochs.jsonl.x1.part").write_text("")
    (folder / records.TRACE).unlink()
    with pytest.warns(UserWarning, match="trace.json changed after being saved"):
        run(SPEC, folder, Settings(device="cpu"))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in whole.iterdir()
    }


def test_a_record_that_its_owner_changed_is_kept_beside_the_one_that_was_saved(whole, copied):
    folder = copied(whole)
    data = json.loads((folder / records.RECORD).read_text()) | {"labels": {"row": "mine"}}
    (folder / records.RECORD).write_text(json.dumps(data))
    with pytest.warns(UserWarning, match="if you changed it yourself, delete the copy"):
        run(SPEC, folder, Settings(device="cpu"))
    assert json.loads((folder / "record.json.changed").read_text()) == data
    assert comparable(folder) == comparable(whole)
    (folder / records.RECORD).write_text(json.dumps(data))
    (folder / records.COPY).unlink()
    assert records.read(folder).data["labels"] == {"row": "mine"}


# Schedules


@DAMAGES
def test_a_damaged_schedule_of_a_run_is_named_and_its_copy_is_used(damage, whole, copied):
    folder = copied(whole)
    good = Schedule.load(folder / records.SCHEDULE).fingerprint()
    damage(folder / records.SCHEDULE)
    with pytest.warns(
        UserWarning, match=r"schedule.safetensors .*; going on with .*schedule.copy.safetensors, which is good"
    ):
        assert Schedule.load(folder / records.SCHEDULE).fingerprint() == good
    damage(copy_of(folder / records.SCHEDULE))
    with pytest.raises(ValueError, match=r"schedule.safetensors .*: copy it again from its source"):
        Schedule.load(folder / records.SCHEDULE)


# Whole trainings


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learned")
    learn(HORIZON, folder, Settings(device="cpu", checkpoint_seconds=0))
    return folder


@pytest.mark.parametrize("name", [records.CHECKPOINT, records.SCHEDULE, meta_training.RECORD])
@DAMAGES
def test_a_damaged_file_of_a_learning_from_whole_trainings_is_made_again(damage, name, learned, copied):
    folder = copied(learned)
    damage(folder / name)
    if name == records.CHECKPOINT:
        with pytest.warns(UserWarning, match="is damaged; going on from the one before"):
            learn(HORIZON, folder, Settings(device="cpu"))
    else:
        learn(HORIZON, folder, Settings(device="cpu"))
    assert (folder / records.SCHEDULE).read_bytes() == (learned / records.SCHEDULE).read_bytes()
    mine, theirs = (json.loads((place / meta_training.RECORD).read_text()) for place in (folder, learned))
    for key in ("generations", "comparisons", "rivals", "spec"):
        assert mine[key] == theirs[key]
