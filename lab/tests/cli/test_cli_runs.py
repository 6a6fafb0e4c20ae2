"""`mlrsnet runs` and `report`: how runs stand, how they go on, and what is told of them."""

import re
import shlex
from pathlib import Path

import pytest
from commands import complaint, everything_below, run
from lab_commands import QUICK, record, status

from mlrsnet_lab import records

pytestmark = pytest.mark.usefixtures("own_folder")

# runs


@pytest.fixture
def several(own_folder, capsys, ctrl_c, break_schedule):
    """One run each: finished, failed, interrupted, and one whose record is damaged."""
    run(capsys, "train", *QUICK, "--schedule", "linear", "--out", "all/a-finished")
    break_schedule("fixed")
    run(capsys, "train", *QUICK, "--schedule", "fixed", "--out", "all/b-failed")
    break_schedule(None)
    ctrl_c(20)
    run(capsys, "train", *QUICK, "--schedule", "cosine", "--out", "all/c-stopped")
    broken = Path("all/d-broken")
    broken.mkdir()
    (broken / records.RECORD).write_text('{"format": 1, "status')


@pytest.mark.usefixtures("several")
def test_runs_list_says_how_every_run_stands(capsys):
    code, out, _ = run(capsys, "runs", "list", "all")
    assert code == 0
    lines = out.splitlines()
    assert re.fullmatch(r"finished +2/2 +\d+\.\d\d +\d+\.\d\d  all/a-finished", lines[1])
    assert re.fullmatch(r"failed +0/2 +- +-  all/b-failed", lines[2])
    assert re.fullmatch(r"interrupted +1/2 +\d+\.\d\d +\d+\.\d\d  all/c-stopped", lines[3])
    assert lines[4].startswith("unreadable: all/d-broken/record.json cannot be read (")
    assert len(lines) == 5


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"format": 1, "status": "finished", "spec": 3}', '{"format": 2}', "\xff"]
)
def test_a_record_that_is_none_does_not_hide_the_others(capsys, content):
    run(capsys, "train", *QUICK, "--out", "all/good")
    Path("all/bad").mkdir()
    (Path("all/bad") / records.RECORD).write_bytes(content.encode("latin1"))
    code, out, _ = run(capsys, "runs", "list", "all")
    assert code == 0
    assert "unreadable: all/bad/record.json" in out
    assert re.search("^finished .*  all/good$", out, re.MULTILINE)


def test_runs_of_another_making_are_listed_with_what_they_have(capsys):
    Path("odd").mkdir()
    (Path("odd") / records.RECORD).write_text('{"format": 1, "status": "finished", "spec": {}}')
    assert re.search(r"^finished +0/\? +- +-  odd$", run(capsys, "runs", "list")[1], re.MULTILINE)
    assert run(capsys, "runs", "show", "odd")[0] == 0


def test_no_runs_say_how_to_make_some(capsys):
    code, out, _ = run(capsys, "runs", "list")
    assert code == 0
    assert "There are no runs below .: `mlrsnet train` and `mlrsnet reproduce` make some." in out
    assert "there is no folder nowhere" in complaint(capsys, "runs", "list", "nowhere")


def test_runs_show_tells_what_was_trained_and_what_came_of_it(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    run(capsys, "train", *QUICK, "--option", "schedule.warmup=0.1", "--seed", 5, "--out", "a")
    code, out, _ = run(capsys, "runs", "show", "a")
    assert code == 0
    found = record("a")
    assert re.search(r"^status +finished$", out, re.MULTILINE)
    assert re.search(r"^schedule +cosine \(warmup 0\.1\)$", out, re.MULTILINE)
    assert "seed 5" in " ".join(out.split())
    assert f"test accuracy {found.result['last']:.2f} % in the last epoch" in " ".join(out.split())
    assert re.search(rf"^ +2 .* {found.epochs[-1]['test_metric']:.2f}$", out, re.MULTILINE)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.usefixtures("several")
def test_runs_show_says_why_a_run_failed(capsys):
    _, out, _ = run(capsys, "runs", "show", "all/b-failed")
    assert re.search("^error +RuntimeError: out of memory by 3 bytes", out, re.MULTILINE)
    assert "all/d-broken/record.json cannot be read" in complaint(capsys, "runs", "show", "all/d-broken")
    assert "all holds no run: pass a folder with a record.json" in complaint(capsys, "runs", "show", "all")


@pytest.mark.usefixtures("several")
def test_resume_goes_on_with_all_below_a_folder_and_leaves_the_rest_alone(capsys):
    finished, broken = everything_below("all/a-finished"), everything_below("all/d-broken")
    code, out, err = run(capsys, "runs", "resume", "all")
    assert code == 0, err
    assert [status(f"all/{name}") for name in ("a-finished", "b-failed", "c-stopped")] == ["finished"] * 3
    assert everything_below("all/a-finished") == finished
    assert everything_below("all/d-broken") == broken
    assert "unreadable: all/d-broken/record.json" in out
    for name, schedule in (("b-failed", "fixed"), ("c-stopped", "cosine")):
        run(capsys, "train", *QUICK, "--schedule", schedule, "--out", "whole-" + schedule)
        assert record(f"all/{name}").comparable() == record(f"whole-{schedule}").comparable()


@pytest.mark.usefixtures("several")
def test_resume_goes_on_with_one(capsys):
    assert run(capsys, "runs", "resume", "all/c-stopped")[0] == 0
    assert (status("all/b-failed"), status("all/c-stopped")) == ("failed", "finished")
    code, out, _ = run(capsys, "runs", "resume", "all/c-stopped")
    assert (code, out) == (0, "nothing to do: 1 run below all/c-stopped, none unfinished\n")
    assert "cannot be read" in complaint(capsys, "runs", "resume", "all/d-broken")


@pytest.mark.usefixtures("several")
def test_a_run_that_fails_again_does_not_keep_the_others_from_going_on(capsys, break_schedule):
    break_schedule("fixed")
    assert "1 of 2 runs failed; all/b-failed: RuntimeError" in complaint(capsys, "runs", "resume", "all", code=1)
    assert (status("all/b-failed"), status("all/c-stopped")) == ("failed", "finished")


def test_the_hint_to_go_on_says_where_the_data_is(capsys, ctrl_c, pictures, tmp_path):
    pictures(x_val=None, y_val=None)
    (tmp_path / "my data").mkdir()
    (tmp_path / "mine.npz").rename(tmp_path / "my data/mnist.npz")
    words = ("--task", "mnist", "--option", "task.val_size=24", "--batch-size", 8, "--data", "my data")
    ctrl_c(3)
    code, _, err = run(capsys, "train", *QUICK, *words, "--out", "a")
    assert (code, err) == (130, "mlrsnet: interrupted; continue with: mlrsnet runs resume a --data 'my data'\n")
    assert run(capsys, *shlex.split(err.partition("continue with: mlrsnet ")[2]))[0] == 0
    assert status("a") == "finished"


@pytest.mark.parametrize("damage", ["data", "checkpoint"])
def test_a_run_that_cannot_go_on_does_not_keep_the_others_from_going_on(capsys, ctrl_c, pictures, damage):
    pictures()
    for name, words in {"a": ["--task", "mine.npz", "--batch-size", 8], "b": []}.items():
        ctrl_c(3)
        run(capsys, "train", *QUICK, *words, "--out", f"all/{name}")
    if damage == "data":
        Path("mine.npz").unlink()
    else:
        (Path("all/a") / records.CHECKPOINT).write_bytes(b"")
    told = {"data": "FileNotFoundError: there is no file", "checkpoint": "ValueError: all/a/checkpoint.pt is not a"}
    message = complaint(capsys, "runs", "resume", "all", code=1)
    assert f"1 of 2 runs failed; all/a: {told[damage]}" in message
    assert (status("all/a"), status("all/b")) == ("interrupted", "finished")


@pytest.mark.usefixtures("several")
def test_stopping_a_resume_of_several_says_how_to_go_on_with_all(capsys, ctrl_c):
    ctrl_c(3)
    code, _, err = run(capsys, "runs", "resume", "all")
    assert (code, err) == (130, "mlrsnet: interrupted; continue with: mlrsnet runs resume all\n")


def test_resume_needs_runs(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "there are no runs below empty" in complaint(capsys, "runs", "resume", "empty")


# report


@pytest.mark.usefixtures("several")
def test_report_tells_of_every_run_and_trains_nothing(capsys, monkeypatch):
    monkeypatch.setattr("mlrsnet_lab.stepper.Stepper.step", lambda self: pytest.fail("trained"))
    code, out, _ = run(capsys, "report", "all", "--out", "told")
    assert (code, out) == (0, "report: told/report.html\nreport: told/report.md\n")
    text = Path("told/report.md").read_text()
    for word in ("linear", "out of memory", "interrupted", "d-broken"):
        assert word in text
    assert run(capsys, "report", "all")[0] == 0
    assert Path("all/report.html").is_file()


def test_report_needs_runs(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "there is no run below empty" in complaint(capsys, "report", "empty")
    assert "there is no folder nowhere" in complaint(capsys, "report", "nowhere")
    assert not list((tmp_path / "empty").iterdir())


def test_a_report_that_cannot_be_written_is_one_line(capsys):
    run(capsys, "train", *QUICK, "--out", "a")
    complaint(capsys, "report", "a", "--out", "/dev/null/x", code=1)
