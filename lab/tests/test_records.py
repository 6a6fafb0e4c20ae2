"""Records on disk: the commit and the sessions that they name, and what can be read."""

import subprocess

import pytest
from runs import Stop, tiny, write_by_hand

import mlrsnet
import mlrsnet_lab
from mlrsnet_lab import records
from mlrsnet_lab.loop import run
from mlrsnet_lab.records import Record
from mlrsnet_lab.settings import Settings


@pytest.fixture
def fresh_commit(monkeypatch):
    """The commit is asked for anew, before the test and after it."""
    monkeypatch.delenv("MLRSNET_COMMIT", raising=False)
    records.commit.cache_clear()
    yield
    records.commit.cache_clear()


@pytest.mark.usefixtures("fresh_commit")
def test_the_commit_is_the_packages_own_and_says_what_was_changed(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for guest in (mlrsnet, mlrsnet_lab):
        monkeypatch.setattr(guest, "__file__", str(package / "__init__.py"))
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "Begin")
    found = []
    for change in (
        lambda: None,  # a repository that does not know the package: someone's project around an environment
        lambda: (git("add", "package"), git("commit", "--quiet", "--message", "Add")),
        lambda: (package / "new.py").write_text(""),
        lambda: monkeypatch.setenv("MLRSNET_COMMIT", "told"),
    ):
        change()
        records.commit.cache_clear()
        found.append(records.commit())
    assert found[0] is None
    assert len(found[1]) == 12
    assert found[2:] == [f"{found[1]}-changed", "told"]


@pytest.mark.usefixtures("fresh_commit")
def test_a_record_names_every_session_that_trained_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MLRSNET_COMMIT", "first")
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, Settings(device="cpu"), watchers=[Stop()])
    monkeypatch.setenv("MLRSNET_COMMIT", "second")
    records.commit.cache_clear()
    sessions = run(tiny(), tmp_path, Settings(device="cpu")).data["sessions"]
    assert [(session["commit"], session["from_step"]) for session in sessions] == [("first", 0), ("second", 64)]


def test_a_run_can_be_read_while_it_is_written_and_a_cut_last_line_is_left_out(tmp_path):
    run(tiny(), tmp_path, Settings(device="cpu"))
    text = (tmp_path / "epochs.jsonl").read_text()
    write_by_hand(tmp_path / "epochs.jsonl", text[:-20])  # as earlier versions could leave it
    assert [line["epoch"] for line in records.read(tmp_path).epochs] == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no run"),
        ("{", "cannot be read"),
        ("[]", "no run record"),
        ('{"format": 2, "status": "", "spec": {}}', "upgrade"),
    ],
)
def test_a_folder_that_is_no_run_is_told_in_one_line(content, message, tmp_path):
    if content is not None:
        (tmp_path / "record.json").write_text(content)
    with pytest.raises(ValueError, match=message) as found:
        records.read(tmp_path)
    assert str(tmp_path) in str(found.value)


def test_runs_are_found_below_a_folder_in_the_order_of_their_names(tmp_path):
    for name in ("b/2", "a", "b/1"):
        records.write(Record({"format": 1, "status": "finished", "spec": {}}, folder=tmp_path / name))
    assert [path.relative_to(tmp_path).as_posix() for path in records.find(tmp_path)] == ["a", "b/1", "b/2"]
    with pytest.raises(ValueError, match="there is no folder"):
        records.find(tmp_path / "c")
