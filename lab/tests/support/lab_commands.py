"""The lab's commands as a user sees them, and what may happen to them."""

import signal
from pathlib import Path

import numpy as np
import pytest

from mlrsnet_lab import records
from mlrsnet_lab.stepper import Stepper

QUICK = ("--model", "mlp", "--epochs", 2, "--device", "cpu")


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
