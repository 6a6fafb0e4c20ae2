import argparse
import csv
import io
import json
import os
import re
import subprocess
import sys
import warnings
from dataclasses import replace

import pytest
import torch
from commands import complaint, everything_below, run, status
from test_schedule import LOSSES, official_checkpoint

from mlrsnet import Schedule, __version__, cli
from mlrsnet.cli import diagnosis
from mlrsnet.lab import demo
from mlrsnet.lab.records import CHECKPOINT
from mlrsnet.nets import LSTMNet
from mlrsnet.ranges import Gamma, PhaseGamma

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def mine(tmp_path):
    torch.manual_seed(0)
    Schedule([LSTMNet(6), LSTMNet(6)]).save(tmp_path / "home" / "mine.safetensors")


def commands(parser, path=()):
    """Every command, by the words that lead to it."""
    parser.load()
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from commands(below, (*path, name))


COMMANDS = dict(commands(cli.parser()))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_fits_a_terminal_and_says_something_of_every_option(capsys, monkeypatch, path):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, *path, "--help")
    assert code == 0
    assert out.startswith(" ".join(["usage: mlrsnet", *path]))
    assert max(map(len, out.splitlines())) <= 80
    assert COMMANDS[path].description
    actions = [action for action in COMMANDS[path]._actions if not isinstance(action, argparse._SubParsersAction)]
    assert all(action.help for action in actions)
    for words in ["demo", "reproduce", "train", "metatrain", "runs", "report", "schedules", "simulate"]:
        assert path or re.search(rf"^    {words} +[a-z]", out, flags=re.MULTILINE | re.IGNORECASE), words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dance"], "invalid choice: 'dance'"),
        ([], "required: COMMAND"),
        (["train", "--epochs", "many"], "argument --epochs: invalid int value: 'many': see `mlrsnet train --help`"),
        (["runs"], "required: ACTION"),
    ],
)
def test_words_that_are_no_command_are_one_line(capsys, words, message):
    assert message in complaint(capsys, *words)


def test_import_list_show_and_simulate_the_authors_checkpoints(capsys, tmp_path):
    paths = [str(official_checkpoint(tmp_path / f"{seed}.pth", seed)[0]) for seed in (1, 2, 3)]
    code, out, _ = run(capsys, "schedules", "import", *paths, "--name", "theirs")
    assert code == 0
    assert "LearnedLR(optimizer, 'theirs'" in out
    assert Schedule.load("theirs").num_phases == 3
    assert Schedule.load("theirs").card.gamma == PhaseGamma()
    assert run(capsys, "schedules", "import", *paths, "--name", "once", "--gamma", "initial")[0] == 0
    assert Schedule.load("once").card.gamma == Gamma()
    _, out, _ = run(capsys, "schedules", "list")
    assert re.search("^theirs ", out, flags=re.MULTILINE)
    code, out, _ = run(capsys, "schedules", "show", "theirs", "--plot", "curves.png", "--map", "map.png")
    assert code == 0
    assert "layout=official-test" in out
    assert (tmp_path / "curves.png").stat().st_size > 5000
    assert (tmp_path / "map.png").stat().st_size > 5000
    _, out, _ = run(capsys, "simulate", "theirs", ",".join(map(str, LOSSES)), "--gamma", "0.5")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [float(row["lr"]) for row in rows] == pytest.approx(Schedule.load("theirs").simulate(LOSSES, 0.5), rel=1e-4)


def test_import_does_not_hide_a_schedule_behind_a_shipped_name(capsys, tmp_path):
    for name in ("universal", "cifar10-resnet18"):
        words = ("schedules", "import", official_checkpoint(tmp_path / "1.pth", 1)[0], "--name", name)
        before = everything_below(tmp_path)
        message = complaint(capsys, *words)
        assert (
            f"--name must not be that of a shipped schedule, which would always be loaded instead, got {name!r}"
            in message
        )
        assert everything_below(tmp_path) == before
        assert run(capsys, *words, "--out", tmp_path / "mine.safetensors")[0] == 0


def test_import_can_write_a_file(capsys, tmp_path):
    path = str(official_checkpoint(tmp_path / "a.pth", 1)[0])
    code, _, _ = run(capsys, "schedules", "import", path, "--out", "a.safetensors")
    assert code == 0
    assert Schedule.load("a.safetensors").num_phases == 1


def test_the_shipped_schedules_are_listed(capsys):
    code, out, _ = run(capsys, "schedules", "list")
    assert code == 0
    assert re.search("^cifar10-patches +Learned from the end of whole trainings", out, flags=re.MULTILINE)
    assert out.startswith("universal                The default: an equation")


def test_the_default_is_shown_as_its_equation_and_has_no_curves(capsys):
    code, out, _ = run(capsys, "schedules", "show", "universal")
    assert code == 0
    assert "alpha_t = " in out
    for words in (["schedules", "show", "universal", "--plot", "a.png"], ["simulate", "universal", "1,1"]):
        assert "schedule must be a network, got 'universal'" in complaint(capsys, *words)


def test_commands_that_need_no_lab_load_none():
    code = """
import contextlib, sys
from mlrsnet.cli import main
for words in (["--help"], ["schedules", "list"], ["simulate", "cifar10-patches", "2.3", "--num-classes", "10"]):
    with contextlib.suppress(SystemExit):
        main(words)
print(sum(name.startswith("mlrsnet.lab") for name in sys.modules))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == "0"


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


def test_simulate_takes_losses_of_a_training_that_goes_on(capsys):
    words = ("simulate", "universal-lstm", "1,1,1", "--gamma", "1", "--total-steps")
    _, out, _ = run(capsys, *words, "100")
    expected = Schedule.load("universal-lstm").simulate([1, 1, 1], total_steps=100)
    assert [float(row["lr"]) for row in csv.DictReader(io.StringIO(out))] == pytest.approx(expected, rel=1e-4)
    assert "total_steps must be a whole number >= 3, got 2" in complaint(capsys, *words, "2")


def test_simulate_takes_the_schedules_own_range(capsys):
    _, out, _ = run(capsys, "simulate", "universal-lstm", "2.3,2.0,1.5", "--num-classes", "10")
    rows, shipped = list(csv.DictReader(io.StringIO(out))), Schedule.load("universal-lstm")
    expected = shipped.simulate([2.3, 2.0, 1.5], shipped.card.gamma.value, num_classes=10)
    assert [float(row["lr"]) for row in rows] == pytest.approx(expected, rel=1e-4)


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
        (
            ["schedules", "show", "nope"],
            2,
            "there is no schedule named 'nope'; known: cifar10-patches, cifar10-resnet18, mine, ptb-lstm, universal",
        ),
        (["simulate", "mine", "1.0,x"], 2, "losses must be numbers"),
        (["simulate", "mine", "nan"], 2, "losses must be a non-empty list of finite numbers"),
        (["simulate", "mine", "1.0", "--gamma", "0"], 2, "gamma must be > 0"),
        (["schedules", "import", "none.pth"], 2, "there is no checkpoint none.pth"),
        (["schedules", "import", "a.pth", "--name", "../x"], 2, "--name must be letters"),
        (["demo", "--epochs", "0"], 2, "--epochs must be a whole number >= 1, got 0"),
        (["demo", "--schedule", "nope"], 2, "there is no schedule named 'nope'"),
        (["demo", "--device", "gpu"], 2, "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        (["demo", "--epochs", "1", "--out", "/dev/null/x"], 1, "Not a directory"),
        (["metatrain", "--epochs", "1", "--out", "/dev/null/x/y"], 1, "Not a directory"),
    ],
)
def test_a_users_mistake_is_one_line_without_a_traceback(capsys, words, code, message):
    assert message in complaint(capsys, *words, code=code)


def test_ctrl_c_ends_quietly(capsys, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("mlrsnet.files.names.available", interrupted)
    code, _, err = run(capsys, "schedules", "list")
    assert (code, err) == (130, "mlrsnet: interrupted\n")


@pytest.mark.parametrize("words", [["demo"], ["train"], ["reproduce", "--list"], ["runs", "list"]])
def test_a_missing_package_names_the_extra(capsys, monkeypatch, words):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    for name in [name for name in sys.modules if name.startswith("mlrsnet.lab.screen")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("mlrsnet.lab.screen", raising=False)
    assert f"{words[0]} needs rich.console, which is not installed: pip install 'mlrsnet[lab]'" in complaint(
        capsys, *words, code=1
    )


def test_a_warning_is_one_line_without_code_that_is_not_the_users(capsys, monkeypatch):
    def known():
        print(warnings.formatwarning("careful", UserWarning, "somewhere.py", 3, "code()"), end="")
        return {}

    before = warnings.formatwarning
    monkeypatch.setattr("mlrsnet.files.names.available", known)
    assert "\nmlrsnet: warning: careful\n" in run(capsys, "schedules", "list")[1]
    assert warnings.formatwarning is before


def test_where_a_mistake_came_from_can_be_seen(monkeypatch):
    monkeypatch.setenv("MLRSNET_DEBUG", "1")
    with pytest.raises(ValueError, match="there is no schedule named"):
        cli.main(["schedules", "show", "nope"])


def test_the_installed_command_runs():
    command = os.path.join(os.path.dirname(sys.executable), "mlrsnet")
    result = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=120, check=True)
    assert result.stdout.strip() == f"mlrsnet {__version__}"


@pytest.mark.usefixtures("mine")
def test_a_reader_that_has_enough_ends_a_command_quietly():
    command = [sys.executable, "-m", "mlrsnet.cli", "simulate", "mine", "-"]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipe) as process:
        process.stdout.close()
        process.stdin.write("1 " * 20_000)
        process.stdin.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


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


META = ("metatrain", "--classes", "012", "--every", "2", "--batch-size", "32", "--epochs")


def test_metatrain_ends_in_a_schedule_and_goes_on_after_being_stopped(capsys, tmp_path, ctrl_c):
    code, out, _ = run(capsys, *META, 3, "--out", "whole.safetensors")
    assert code == 0
    assert "Algorithm 1: T_val = 2" in out
    assert "schedule: whole.safetensors" in out
    assert not (tmp_path / "whole.safetensors.run").exists()

    ctrl_c(17)
    code, _, err = run(capsys, *META, 3, "--out", "parts.safetensors")
    assert (code, err) == (130, "mlrsnet: interrupted; the same command continues where it stopped\n")
    assert status("parts.safetensors.run") == "interrupted"
    assert not (tmp_path / "parts.safetensors").exists()
    message = complaint(capsys, *META, 4, "--out", "parts.safetensors")
    assert "parts.safetensors.run holds a run with another spec (different: epochs)" in message
    assert run(capsys, *META, 3, "--out", "parts.safetensors")[0] == 0
    whole, parts = (Schedule.load(f"{name}.safetensors") for name in ("whole", "parts"))
    assert whole.fingerprint() == parts.fingerprint()
    assert whole.card == parts.card


@pytest.mark.parametrize("objective", ["greedy", "horizon"])
def test_metatrain_does_not_overwrite_a_schedule(capsys, tmp_path, objective):
    (tmp_path / "mine.safetensors").write_bytes(b"mine")
    message = complaint(capsys, "metatrain", "--objective", objective, "--out", "mine.safetensors")
    assert "out must be a new file, but mine.safetensors exists: choose another name, or delete it" in message
    assert everything_below(tmp_path) == {tmp_path / "mine.safetensors": b"mine"}


@pytest.mark.parametrize(
    ("words", "card"),
    [
        (["--classes", "012"], "digits 012"),
        (["--classes", "9,1,4"], "digits 9,1,4"),
        (["--name", "mine", "--net", "mlp", "--optimizer", "adamw", "--model", "mlp"], "mine"),
    ],
)
def test_metatrain_names_its_schedule_after_what_it_has_seen(capsys, words, card):
    code, out, err = run(capsys, "metatrain", "--epochs", 1, *words)
    assert code == 0, err
    found = Schedule.load("learned.safetensors")
    assert found.card.name == card
    assert found.card.name in out


@pytest.mark.filterwarnings("ignore:a meta-update was skipped", "ignore:a loss was not finite")
@pytest.mark.filterwarnings("ignore:10 losses in a row were not finite")
def test_metatrain_says_that_a_training_diverged(capsys, tmp_path):
    message = complaint(capsys, "metatrain", "--epochs", 2, "--weight-decay", "1e30")
    assert "the training diverged after 1 epochs: see learned.safetensors.run, and change its settings" in message
    assert not (tmp_path / "learned.safetensors").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--classes", "0-4"],
            "--classes must be digits written together, such as 01234, or numbers with commas, got '0-4'",
        ),
        (["--classes", "00"], "classes must be"),
        (["--classes", "7"], "classes must be"),
        (["--epochs", "0"], "epochs must be a whole number >= 1, got 0"),
        (["--optimizer", "rprop"], "optimizer must be one of sgd, sgdm, adam, adamw"),
        (["--net", "gru"], "net must be one of lstm, mlp; got 'gru'"),
        (["--meta-lr", "-1"], "meta_lr must be > 0"),
        (
            ["--batch-size", "5000"],
            "batch_size must leave at least one full batch of the train data (1200 pictures), got 5000",
        ),
        (["--out", "."], "out must be a file, got the folder ."),
        (["--task", "nope"], "task must be one of digits, cifar10"),
        (["--device", "gpu"], "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
    ],
)
def test_metatrain_names_a_bad_argument_and_leaves_nothing(capsys, tmp_path, words, message):
    assert message in complaint(capsys, "metatrain", *words)
    assert not list(tmp_path.iterdir())


def test_a_damaged_checkpoint_is_named(capsys, tmp_path, ctrl_c):
    ctrl_c(2)
    assert run(capsys, *META, 2, "--out", "a.safetensors")[0] == 130
    (tmp_path / "a.safetensors.run" / CHECKPOINT).write_bytes(b"nothing")
    message = complaint(capsys, *META, 2, "--out", "a.safetensors")
    assert "a.safetensors.run/checkpoint.pt is not a checkpoint of this run" in message
    assert "delete it to start over" in message
    (tmp_path / "a.safetensors.run" / CHECKPOINT).unlink()
    assert run(capsys, *META, 2, "--out", "a.safetensors")[0] == 0


def test_doctor_says_what_a_bug_report_needs_and_tests_itself(capsys):
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    for word in (__version__, str(torch.__version__), "cifar10-patches", "cpu", "lab"):
        assert word in out
    assert out.count("\n  ok ") >= 5
    assert "FAILED" not in out
    code, out, _ = run(capsys, "doctor", "--json")
    told = json.loads(out)
    assert told["versions"]["torch"] == str(torch.__version__)
    assert not any(check["problem"] for check in told["self-test"])


def test_doctor_says_what_is_broken_and_goes_on(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("MLRSNET_HOME", str(tmp_path))
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    code, out, err = run(capsys, "doctor")
    assert code == 1
    assert re.search("FAILED +every known schedule gives an LR .*ScheduleError", out)
    assert out.count("\n  ok ") >= 4
    assert "1 of 5 checks failed" in err


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        ("mlrsnet.scheduler.LearnedLR.load_state_dict", "a stopped training resumes bit for bit"),
        ("mlrsnet.scheduler.LearnedLR.step", "a tensor LR gives the same LRs as a float LR"),
        ("mlrsnet.default.Default.advance", "a training under the default learns"),
    ],
)
def test_doctor_notices(broken, check, monkeypatch):
    monkeypatch.setattr(broken, lambda *arguments, **more: None)
    assert check in {found.name for found in diagnosis.self_test() if found.problem}
