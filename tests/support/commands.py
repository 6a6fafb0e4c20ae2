"""The command line as a user sees it: words in, exit code and output out."""

from pathlib import Path

import pytest

from mlrsnet import cli


def run(capsys, *words):
    try:
        code = cli.main([str(word) for word in words])
    except SystemExit as stop:
        code = stop.code
    output = capsys.readouterr()
    return code, output.out, output.err


def complaint(capsys, *words, code=2):
    """The error of a command that must fail: one line, no traceback."""
    found, _, err = run(capsys, *words)
    assert found == code, err
    assert err.startswith("mlrsnet")
    assert ": error: " in err
    assert err.count("\n") == 1
    return err


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """A new working folder, without any of the user's files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLRSNET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLRSNET_DATA", str(tmp_path / "data"))


def everything_below(folder):
    """Every file and its bytes, to check that nothing changed."""
    return {path: path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}
