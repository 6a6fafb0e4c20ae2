import argparse
import csv
import io
import json
import os
import re
import subprocess
import sys
import warnings

import pytest
import torch
from commands import complaint, everything_below, run
from test_schedule import LOSSES, official_checkpoint

from mlrsnet import Schedule, __version__, cli
from mlrsnet.cli import diagnosis
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
        (["schedules"], "required: ACTION"),
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
print(*sorted(name for name in sys.modules if name.startswith("mlrsnet_lab")))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == "mlrsnet_lab mlrsnet_lab.commands"  # the list


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
