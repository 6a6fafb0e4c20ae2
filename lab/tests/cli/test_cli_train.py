"""`mlrsnet train`: what a training leaves, how it stops and fails, and data of one's own."""

import re
from pathlib import Path

import numpy as np
import pytest
from commands import complaint, everything_below, run
from lab_commands import QUICK, record, status

from mlrsnet import Schedule
from mlrsnet.nets import LSTMNet
from mlrsnet_lab import records
from mlrsnet_lab.spec import RunSpec

pytestmark = pytest.mark.usefixtures("own_folder")


def test_train_does_what_its_options_say(capsys):
    words = (
        "--schedule",
        "linear",
        "--lr",
        0.5,
        "--batch-size",
        128,
        "--optimizer",
        "sgdm",
        "--clip-norm",
        2,
        "--seed",
        7,
    )
    more = ("--weight-decay", 0, "--eval-every", 2, "--precision", "fp32", "--deterministic")
    code, out, err = run(capsys, "train", *QUICK, *words, *more, "--out", "a")
    assert code == 0, err
    found = record("a")
    assert found.status == "finished"
    assert found.data["steps_per_epoch"] == 9
    assert RunSpec.from_dict(found.spec) == RunSpec(
        model="mlp",
        epochs=2,
        schedule="linear",
        lr=0.5,
        batch_size=128,
        optimizer="sgdm",
        clip_norm=2.0,
        seed=7,
        weight_decay=0.0,
        eval_every=2,
        precision="fp32",
        deterministic=True,
    )
    assert re.search(rf"^finished +2/2 +{found.result['last']:.2f} +{found.result['best']:.2f}  a$", out, re.MULTILINE)


def test_a_training_can_be_repeated_from_a_file_and_from_its_record(capsys, tmp_path):
    (tmp_path / "spec.json").write_text('{"model": "mlp", "epochs": 2, "schedule": "linear"}')
    assert run(capsys, "train", "spec.json", "--out", "first")[0] == 0
    assert run(capsys, "train", "first/record.json", "--out", "second")[0] == 0
    assert run(capsys, "train", *QUICK, "--schedule", "linear", "--out", "third")[0] == 0
    first, second, third = (record(name).comparable() for name in ("first", "second", "third"))
    assert first == second == third


def test_a_learned_schedule_named_directly_trains_and_one_that_is_not_there_is_told(capsys, tmp_path):
    Schedule(LSTMNet(4)).save(tmp_path / "home/kept.safetensors")
    assert run(capsys, "train", *QUICK, "--schedule", "kept", "--out", "a")[0] == 0
    assert record("a").spec["schedule_options"] == {"schedule": "kept"}
    message = complaint(capsys, "train", *QUICK, "--schedule", "univrsal")
    assert "universal" in message
    assert "the path of a .safetensors file or hf://owner/name; got 'univrsal'" in message
    assert "none.safetensors" in complaint(capsys, "train", *QUICK, "--schedule", "none.safetensors")


def test_the_same_training_has_the_same_folder_and_another_one_another(capsys, tmp_path):
    first = run(capsys, "train", *QUICK)
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("digits-mlp-sgd-cosine-seed0-")
    before = everything_below(folder)
    again = run(capsys, "train", *QUICK)
    assert first[0] == again[0] == 0
    assert "finished before" in again[1]
    assert everything_below("runs") == {path.relative_to(tmp_path): content for path, content in before.items()}
    assert run(capsys, "train", *QUICK, "--lr", 0.2)[0] == 0
    assert run(capsys, "train", *QUICK, "--seed", 1)[0] == 0
    assert len(list((tmp_path / "runs").iterdir())) == 3


def test_another_training_does_not_overwrite_a_finished_one(capsys):
    run(capsys, "train", *QUICK, "--out", "a")
    before = everything_below("a")
    message = complaint(capsys, "train", *QUICK, "--lr", 0.3, "--seed", 4, "--out", "a")
    assert "a holds a run with another spec (different: lr, seed): use another folder, or delete it" in message
    assert everything_below("a") == before


def test_tensorboard_shows_loss_lr_and_metric(capsys):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert run(capsys, "train", *QUICK, "--out", "a", "--tensorboard")[0] == 0
    events = EventAccumulator("a/tensorboard").Reload()
    found, expected = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}, record("a")
    assert len(found["step/loss"]) == len(found["step/lr"]) == 36
    assert found["step/lr"][18].value == pytest.approx(expected.trace["lr"][18], rel=1e-4)
    assert [event.value for event in found["epoch/test_metric"]] == pytest.approx(
        [line["test_metric"] for line in expected.epochs], rel=1e-4
    )
    assert run(capsys, "train", *QUICK, "--out", "b")[0] == 0
    assert not Path("b/tensorboard").exists()


def test_a_training_that_diverges_is_a_result(capsys):
    code, out, _ = run(capsys, "train", *QUICK, "--lr", "1e30", "--schedule", "fixed", "--out", "a")
    assert code == 0
    assert status("a") == "diverged"
    assert re.search(r"^diverged +1/2 ", out, re.MULTILINE)


@pytest.mark.parametrize("when", ["step", "setup"])
def test_a_training_that_fails_says_why_in_one_line(capsys, break_schedule, when):
    break_schedule("cosine", when)
    message = complaint(capsys, "train", *QUICK, "--out", "a", code=1)
    assert "1 of 1 runs failed; a: RuntimeError: out of memory" in message
    if when == "step":
        assert status("a") == "failed"
        assert record("a").data["error"].startswith("RuntimeError: out of memory")
    break_schedule(None)
    assert run(capsys, "train", *QUICK, "--out", "a")[0] == 0
    assert "error" not in record("a").data


def test_ctrl_c_leaves_a_run_that_goes_on_to_the_same_end(capsys, ctrl_c):
    run(capsys, "train", *QUICK, "--out", "whole")
    ctrl_c(25)
    code, _, err = run(capsys, "train", *QUICK, "--out", "parts")
    assert (code, err) == (130, "mlrsnet: interrupted; continue with: mlrsnet runs resume parts\n")
    assert status("parts") == "interrupted"
    assert run(capsys, "runs", "resume", "parts")[0] == 0
    assert record("parts").comparable() == record("whole").comparable()
    assert not (Path("parts") / records.CHECKPOINT).exists()


def test_a_folder_that_cannot_be_written_is_told_before_the_work(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("mlrsnet_lab.stepper.Stepper.step", lambda self: pytest.fail("trained"))
    (tmp_path / "file").write_text("mine")
    assert "file" in complaint(capsys, "train", *QUICK, "--out", "file/run", code=1)
    assert (tmp_path / "file").read_text() == "mine"


def test_brackets_in_names_are_shown_as_they_are(capsys):
    _, out, _ = run(capsys, "train", *QUICK, "--out", "a[bold]b")
    assert "a[bold]b" in out
    assert "a[bold]b" in run(capsys, "runs", "list")[1]


# data of one's own


def test_ones_own_pictures_train(capsys, pictures):
    pictures()
    code, out, err = run(capsys, "train", "--task", "mine.npz", *QUICK, "--batch-size", 32)
    assert code == 0, err
    assert "96 train, 24 val, 24 test\n" in out
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("mine-mlp")
    assert record(folder).data["task"]["num_classes"] == 3
    assert Path(record(folder).spec["task"]).is_absolute()  # a run may be resumed from elsewhere


@pytest.mark.parametrize("command", ["train", "metatrain"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_train": np.arange(96) % 2 * 2}, "y_train must have at least two classes and every class from 0 to 2"),
        ({"x_train": np.full((96, 8, 8), np.nan)}, "x_train must be finite, got NaN or infinite pixels"),
        ({"x_train": np.array([{}] * 96)}, "holds Python objects"),
        (None, "mine.npz is damaged or not an .npz file"),
    ],
    ids=["a class missing", "NaN", "objects", "damaged"],
)
def test_bad_pictures_are_named_and_nothing_is_left(capsys, tmp_path, pictures, command, changes, message):
    pictures(**(changes or {}))
    if changes is None:
        content = (tmp_path / "mine.npz").read_bytes()
        (tmp_path / "mine.npz").write_bytes(content[: len(content) // 2])
    assert message in complaint(capsys, command, "--task", "mine.npz", "--epochs", 1, "--batch-size", 16)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npz"]


def test_a_file_that_is_not_there_is_named(capsys):
    assert "there is no file" in complaint(capsys, "train", "--task", "none.npz", code=1)
