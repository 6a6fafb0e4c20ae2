"""`mlrsnet demo`, and what all commands of the lab share."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from commands import complaint, run

from mlrsnet import Schedule
from mlrsnet.nets import LSTMNet
from mlrsnet_lab import demo

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def mine(tmp_path):
    torch.manual_seed(0)
    Schedule([LSTMNet(6), LSTMNet(6)]).save(tmp_path / "home" / "mine.safetensors")


@pytest.mark.parametrize("words", [["demo"], ["train"], ["reproduce", "--list"]])
def test_a_missing_package_names_the_extra(capsys, monkeypatch, words):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    for name in [name for name in sys.modules if name.startswith("mlrsnet_lab.screen")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("mlrsnet_lab.screen", raising=False)
    assert f"{words[0]} needs rich.console, which is not installed: pip install mlrsnet-lab" in complaint(
        capsys, *words, code=1
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["train", "--epochs", "many"], 2, "argument --epochs: invalid int value: 'many': see `mlrsnet train --help`"),
        (["runs"], 2, "required: ACTION"),
        (["demo", "--epochs", "0"], 2, "--epochs must be a whole number >= 1, got 0"),
        (["demo", "--schedule", "nope"], 2, "there is no schedule named 'nope'"),
        (["demo", "--device", "gpu"], 2, "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        (["demo", "--epochs", "1", "--out", "/dev/null/x"], 1, "Not a directory"),
        (["metatrain", "--epochs", "1", "--out", "/dev/null/x/y"], 1, "Not a directory"),
    ],
)
def test_a_users_mistake_is_one_line_without_a_traceback(capsys, words, code, message):
    assert message in complaint(capsys, *words, code=code)


@pytest.mark.usefixtures("mine")
def test_ctrl_c_in_the_demo_says_what_the_same_command_does(capsys, ctrl_c):
    ctrl_c(3)
    code, _, err = run(capsys, "demo", "--schedule", "mine", "--epochs", 1, "--device", "cpu")
    assert code == 130
    assert err == "mlrsnet: interrupted; the same command starts over; fewer --generations or --seeds take less time\n"


@pytest.mark.usefixtures("mine")
def test_demo_learns_transfers_compares_and_leaves_table_picture_and_record(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "TUNING_SEEDS", (1000,))
    monkeypatch.setattr(demo, "LR_GRID", (0.3, 1.0))
    monkeypatch.setattr(demo, "HORIZON_LEARNING", replace(demo.HORIZON_LEARNING, held_out=2))
    monkeypatch.setattr(demo, "GREEDY_LEARNING", replace(demo.GREEDY_LEARNING, epochs=2))
    words = ("--generations", "2", "--epochs", "2", "--seeds", "2", "--device", "cpu")
    code, out, _ = run(capsys, "demo", *words, "--out", "first")
    assert code == 0
    names = ["Fixed", "MultiStep", "Exponential", "SGDR", "Cosine", "Linear", "Full horizon", "MLR-SNet"]
    assert all(name in out for name in names)
    assert (tmp_path / "first" / "demo.png").stat().st_size > 20_000
    full, greedy = (Schedule.load(tmp_path / "first" / f"{name}.safetensors") for name in ("full-horizon", "mlr-snet"))
    assert "[0, 1, 2, 3, 4]" in full.card.learned_on
    assert "classes [0, 1, 2, 3, 4]" in greedy.card.learned_on
    record = json.loads((tmp_path / "first" / "demo.json").read_text())
    assert record["schedules"]["MLR-SNet"]["name"] == "digits 0-4"
    assert [row["schedule"] for row in record["rows"]] == names
    notes = ["learned on small trainings on digits 0-4", "learned on digits 0-4"]
    assert [row["note"] for row in record["rows"]] == [*[""] * 6, *notes]
    assert len(record["runs"]) == 16
    assert all(len(run["lr"]) == 36 and min(run["lr"]) >= 0 for run in record["runs"])

    run(capsys, "demo", *words, "--out", "second", "--schedule", "mine")
    again = json.loads((tmp_path / "second" / "demo.json").read_text())
    hand_designed = [run for run in record["runs"] if run["schedule"] in names[:6]]
    assert [run for run in again["runs"] if run["schedule"] in names[:6]] == hand_designed  # same seed, same run
    assert again["rows"][-1]["note"] == "learned on unnamed"
