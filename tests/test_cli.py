import csv
import io
import json
import os
import re
import subprocess
import sys

import pytest
import torch
from test_schedule import LOSSES, official_checkpoint

from mlrsnet import LSTMNet, Schedule, __version__, cli, load
from mlrsnet.lab.learn import Learner


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLRSNET_HOME", str(tmp_path / "home"))


@pytest.fixture
def mine(tmp_path):
    torch.manual_seed(0)
    Schedule([LSTMNet(6), LSTMNet(6)]).save(tmp_path / "home" / "mine.safetensors")


def run(capsys, *words):
    code = cli.main(words)
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.parametrize(
    "words", [["--help"], ["demo", "--help"], ["metatrain", "--help"], ["schedules", "--help"], ["simulate", "--help"]]
)
def test_help_is_there_for_every_command(capsys, words):
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 0
    assert "usage: mlrsnet" in capsys.readouterr().out


def test_unknown_words_exit_with_2(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["dance"])
    assert stop.value.code == 2
    assert "invalid choice: 'dance'" in capsys.readouterr().err


def test_import_list_show_and_simulate_the_authors_checkpoints(capsys, tmp_path):
    paths = [str(official_checkpoint(tmp_path / f"{seed}.pth", seed)[0]) for seed in (1, 2, 3)]
    code, out, _ = run(capsys, "schedules", "import", *paths, "--name", "theirs")
    assert code == 0
    assert "LearnedLR(optimizer, 'theirs'" in out
    assert load("theirs").num_phases == 3
    _, out, _ = run(capsys, "schedules", "list")
    assert out.startswith("theirs ")
    code, out, _ = run(capsys, "schedules", "show", "theirs", "--plot", "curves.png")
    assert code == 0
    assert "layout=official-test" in out
    assert (tmp_path / "curves.png").stat().st_size > 5000
    _, out, _ = run(capsys, "simulate", "theirs", ",".join(map(str, LOSSES)), "--gamma", "0.5")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [float(row["lr"]) for row in rows] == pytest.approx(load("theirs").simulate(LOSSES, 0.5), rel=1e-4)


def test_import_can_write_a_file(capsys, tmp_path):
    path = str(official_checkpoint(tmp_path / "a.pth", 1)[0])
    code, _, _ = run(capsys, "schedules", "import", path, "--out", "a.safetensors")
    assert code == 0
    assert Schedule.load("a.safetensors").num_phases == 1


def test_an_empty_list_says_how_to_get_one(capsys):
    code, out, _ = run(capsys, "schedules", "list")
    assert code == 0
    assert out.strip()


@pytest.mark.usefixtures("mine")
def test_a_damaged_schedule_does_not_hide_the_others(capsys, tmp_path):
    (tmp_path / "home" / "broken.safetensors").write_bytes(b"nothing")
    code, out, _ = run(capsys, "schedules", "list")
    assert code == 0
    assert re.search("^mine ", out, flags=re.MULTILINE)
    assert "broken                   unreadable" in out


@pytest.mark.usefixtures("mine")
def test_long_lists_of_losses_are_not_taken_for_file_names(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(["2.345"] * 500)))
    code, out, _ = run(capsys, "simulate", "mine", "-")
    assert code == 0
    assert len(out.splitlines()) == 501
    assert run(capsys, "simulate", "mine", ",".join(["2.345"] * 500))[0] == 0


@pytest.mark.usefixtures("mine")
def test_simulate_reads_files_and_standard_input(capsys, tmp_path, monkeypatch):
    (tmp_path / "losses.txt").write_text("2.0\n1.5\n1.0\n")
    _, from_file, _ = run(capsys, "simulate", "mine", "losses.txt")
    monkeypatch.setattr(sys, "stdin", io.StringIO("2.0 1.5 1.0"))
    _, from_stdin, _ = run(capsys, "simulate", "mine", "-")
    assert from_file == from_stdin
    assert len(from_file.splitlines()) == 4


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["schedules", "show", "nope"], 2, "there is no schedule named 'nope'; known: mine"),
        (["simulate", "mine", "1.0,x"], 2, "losses must be numbers"),
        (["simulate", "mine", "nan"], 2, "losses must be a non-empty list of finite numbers"),
        (["simulate", "mine", "1.0", "--gamma", "0"], 2, "gamma must be > 0"),
        (["schedules", "import", "none.pth"], 2, "there is no checkpoint none.pth"),
        (["schedules", "import", "a.pth", "--name", "../x"], 2, "--name must be letters"),
        (["demo", "--epochs", "0"], 2, "--epochs must be a whole number >= 1, got 0"),
        (["demo", "--schedule", "nope"], 2, "there is no schedule named 'nope'"),
        (["demo", "--epochs", "1", "--out", "/dev/null/x"], 1, "Not a directory"),
        (["metatrain", "--epochs", "1", "--out", "/dev/null/x/y"], 1, "Not a directory"),
    ],
)
def test_a_users_mistake_is_one_line_without_a_traceback(capsys, words, code, message):
    found, _, err = run(capsys, *words)
    assert found == code
    assert err.startswith("mlrsnet: error: ")
    assert err.count("\n") == 1
    assert message in err


def test_ctrl_c_ends_quietly(capsys, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.pretrained, "available", interrupted)
    code, _, err = run(capsys, "schedules", "list")
    assert (code, err) == (130, "mlrsnet: interrupted\n")


def test_a_missing_package_names_the_extra(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.delitem(sys.modules, "mlrsnet.lab.screen", raising=False)
    monkeypatch.delattr("mlrsnet.lab.screen", raising=False)
    code, _, err = run(capsys, "demo", "--epochs", "1")
    assert code == 1
    assert "pip install 'mlrsnet[lab]'" in err


def test_the_installed_command_runs():
    command = os.path.join(os.path.dirname(sys.executable), "mlrsnet")
    result = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=120, check=True)
    assert result.stdout.strip() == f"mlrsnet {__version__}"


@pytest.mark.usefixtures("mine")
def test_demo_learns_transfers_compares_and_leaves_table_picture_and_record(capsys, tmp_path):
    words = ("--epochs", "2", "--seeds", "2", "--device", "cpu")
    code, out, _ = run(capsys, "demo", *words, "--out", "first")
    assert code == 0
    names = ["Fixed", "MultiStep", "Exponential", "SGDR", "Cosine", "MLR-SNet"]
    assert all(name in out for name in names)
    assert (tmp_path / "first" / "demo.png").stat().st_size > 20_000
    learned = Schedule.load(tmp_path / "first" / "schedule.safetensors")
    assert "classes 0, 1, 2, 3, 4" in learned.card.learned_on
    record = json.loads((tmp_path / "first" / "demo.json").read_text())
    assert record["schedule"]["name"] == "digits 0-4"
    assert [row["schedule"] for row in record["rows"]] == names
    assert [row["note"] for row in record["rows"]] == ["", "", "", "", "", "learned on digits 0-4"]
    assert len(record["runs"]) == 12
    assert all(len(run["lr"]) == 18 and min(run["lr"]) >= 0 for run in record["runs"])

    run(capsys, "demo", *words, "--out", "second", "--schedule", "mine")
    again = json.loads((tmp_path / "second" / "demo.json").read_text())
    hand_designed = [run for run in record["runs"] if run["schedule"] != "MLR-SNet"]
    assert [run for run in again["runs"] if run["schedule"] != "MLR-SNet"] == hand_designed  # same seed, same run
    assert again["rows"][-1]["note"] == "learned on unnamed"


def test_metatrain_ends_in_a_schedule_and_goes_on_after_being_stopped(capsys, tmp_path, monkeypatch):
    words = ("metatrain", "--epochs", "3", "--classes", "012", "--every", "2", "--batch-size", "32")
    code, out, _ = run(capsys, *words, "--out", "whole.safetensors")
    assert code == 0
    assert "Algorithm 1: T_val = 2" in out
    assert not (tmp_path / "whole.safetensors.checkpoint").exists()

    original = Learner.epoch

    def stopped(self):
        if self.epochs_done == 2:
            raise KeyboardInterrupt
        original(self)

    monkeypatch.setattr(Learner, "epoch", stopped)
    assert run(capsys, *words, "--out", "parts.safetensors")[0] == 130
    assert (tmp_path / "parts.safetensors.checkpoint").exists()
    monkeypatch.setattr(Learner, "epoch", original)
    code, _, err = run(capsys, *words[:2], "4", *words[3:], "--out", "parts.safetensors")
    assert code == 2
    assert "was made with other settings" in err
    assert run(capsys, *words, "--out", "parts.safetensors")[0] == 0
    whole, parts = (Schedule.load(f"{name}.safetensors") for name in ("whole", "parts"))
    assert whole.fingerprint() == parts.fingerprint()
    assert whole.card == parts.card


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--classes", "0-4"], "--classes must be digits written together, such as 01234, got '0-4'"),
        (["--classes", "00"], "classes must be different digits from 0 to 9"),
        (["--classes", "7"], "the number of classes must be a whole number >= 2, got 1"),
        (["--epochs", "0"], "epochs must be a whole number >= 1, got 0"),
        (["--optimizer", "rprop"], "optimizer must be one of sgd, momentum, adam, adamw; got 'rprop'"),
        (["--net", "gru"], "net must be one of lstm, mlp; got 'gru'"),
        (["--meta-lr", "-1"], "meta_lr must be > 0"),
        (["--batch-size", "5000"], "batch_size must be at most 1200"),
    ],
)
def test_metatrain_names_a_bad_argument(capsys, words, message):
    code, _, err = run(capsys, "metatrain", *words)
    assert code == 2
    assert message in err


def test_a_damaged_checkpoint_is_named(capsys, tmp_path):
    (tmp_path / "a.safetensors.checkpoint").write_bytes(b"nothing")
    code, _, err = run(capsys, "metatrain", "--epochs", "1", "--out", "a.safetensors")
    assert code == 2
    assert "a.safetensors.checkpoint is not a checkpoint of a meta-training" in err
