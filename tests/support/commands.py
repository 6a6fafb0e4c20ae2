"""The command line as a user sees it: words in, exit code and output out."""

import signal
from pathlib import Path

import numpy as np
import pytest

from mlrsnet import cli
from mlrsnet.lab import records
from mlrsnet.lab.stepper import Stepper

QUICK = ("--model", "mlp", "--epochs", 2, "--device", "cpu")


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


@pytest.fixture
def pictures(tmp_path):
    """A function that writes a user's .npz file. Its arguments replace arrays; None removes one."""

    def write(**changes):
        random = np.random.default_rng(0)
        arrays = {
            "x_train": random.random((96, 8, 8)).astype("float32"),
            "y_train": np.arange(96) % 3,
            "x_val": random.random((24, 8, 8)).astype("float32"),
            "y_val": np.arange(24) % 3,
            "x_test": random.random((24, 8, 8)).astype("float32"),
            "y_test": np.arange(24) % 3,
        }
        kept = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
        np.savez(tmp_path / "mine.npz", **kept)

    return write


@pytest.fixture
def ctrl_c(monkeypatch):
    """Presses Ctrl-C once, after so many steps of this process."""
    plain, pressed = Stepper.step, []

    def press_after(steps):
        def step(self):
            plain(self)
            pressed.append(self)
            if len(pressed) == steps:
                signal.raise_signal(signal.SIGINT)

        pressed.clear()
        monkeypatch.setattr(Stepper, "step", step)

    return press_after


@pytest.fixture
def break_schedule(monkeypatch):
    """Makes every training under a schedule fail, in its first step or while it is set up; None repairs it."""
    plain_step, plain_setting = Stepper.step, Stepper._setting

    def break_it(name, when="step"):
        def step(self):
            if self.spec.schedule == name and when == "step":
                raise RuntimeError("out of memory\nby 3 bytes [enforce fail]")
            plain_step(self)

        def setting(self):
            if self.spec.schedule == name and when == "setup":
                raise RuntimeError("out of memory")
            return plain_setting(self)

        monkeypatch.setattr(Stepper, "step", step)
        monkeypatch.setattr(Stepper, "_setting", setting)

    return break_it


def record(folder):
    return records.read(Path(folder))


def status(folder):
    return records.read(Path(folder)).status


def everything_below(folder):
    """Every file and its bytes, to check that nothing changed."""
    return {path: path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}
