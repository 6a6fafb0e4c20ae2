"""Small runs for tests of the training loop, and watchers that stop them or record events."""

import os
import signal

import pytest
import torch

from mlrsnet import Schedule
from mlrsnet.nets import LSTMNet
from mlrsnet_lab import loop, records
from mlrsnet_lab.loop import run
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.watch import Watcher

CPU = torch.device("cpu")
PER_EPOCH = 61  # steps; watchers are first called at step 64, the third of the second epoch
TINY = {
    "task_options": {"classes": [0, 1]},
    "model": "mlp",
    "model_options": {"width": 8, "depth": 1},
    "batch_size": 4,
    "epochs": 2,
    "lr": 0.02,
}
SMALL_CNN = {"model": "small_cnn", "model_options": {"width": 2}}
LRS = {
    "adam": 0.003,
    "adamw": 0.003,
    "schedule-free-adamw": 0.003,
    "prodigy": 1.0,
    "d-adapt-sgd": 1.0,
    "d-adapt-adam": 1.0,
    "l-dog": 1.0,
    "schedule-free-plus": 0.1,
    "mechanic-sgd": 1.0,
    "mechanic-adam": 1.0,
    "lars": 10.0,
}
WORDS = "a rose is a rose and a daisy is a daisy but no rose is a daisy\n"


def tiny(**changes):
    """A small run; a test that asks for an optimizer of timm is skipped where that is not installed."""
    _need_timm(changes)
    return RunSpec(**(TINY | changes))


def _need_timm(changes):
    if changes.get("optimizer") in ("lars", "lamb"):
        pytest.importorskip("timm")


@pytest.fixture(scope="session")
def schedule_file(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("schedules") / "made-up.safetensors"
    Schedule(LSTMNet()).save(path)
    return str(path)


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """A data folder with a small text in place of Penn Treebank."""
    root = tmp_path_factory.mktemp("data")
    (root / "ptb").mkdir()
    for name, times in (("train", 60), ("valid", 12), ("test", 15)):
        (root / "ptb" / f"{name}.txt").write_text(WORDS * times)
    return root


def of_text(model="lstm", **changes):
    size = {"hidden": 6} if model == "lstm" else {"width": 8, "layers": 1, "heads": 2}
    _need_timm(changes)
    values = {"task": "ptb", "model": model, "model_options": size, "batch_size": 2, "sequence_length": 5, "epochs": 2}
    return RunSpec(**(values | changes))


class Stop(Watcher):
    """Presses Ctrl-C at step 64, in the middle of an epoch. Slow machines tell of other steps too, even of an epoch's last."""

    def __init__(self, number=signal.SIGINT, times=1):
        self.number, self.times = number, times

    def steps(self, step):
        if step % 64 == 0:
            self.press()

    def press(self):
        for _ in range(self.times):
            os.kill(os.getpid(), self.number)


class StopAtEnd(Stop):
    """Presses Ctrl-C while an epoch is being evaluated."""

    def __init__(self, epoch):
        super().__init__()
        self.at = epoch

    def epoch(self, line, losses, lrs):
        if line["epoch"] == self.at:
            self.press()

    def steps(self, step):
        pass


class Notes(Watcher):
    """Records every event."""

    def __init__(self):
        self.heard, self.losses, self.lrs = [], [], []

    def begin(self, record, step, total_steps):
        self.heard.append(("begin", step, total_steps))

    def epoch(self, line, losses, lrs):
        self.heard.append(("epoch", line["epoch"]))
        self.losses += losses
        self.lrs += lrs

    def end(self, record):
        self.heard.append(("end", record.status))


def write_by_hand(path, text):
    """Change a file of a run as its owner would, who knows of the copy."""
    path.write_text(text)
    (path.parent / records.COPY).unlink()


def checkpoint_step(folder):
    return torch.load(folder / records.CHECKPOINT, weights_only=True)["training"]["step"]


def stop_and_resume(spec, folder, **options):
    """Stop a run with Ctrl-C in the middle of an epoch, then resume it to the end."""
    with pytest.raises(KeyboardInterrupt):
        run(spec, folder, watchers=[Stop()], **options)
    stopped = records.read(folder)
    assert stopped.status == "interrupted"
    assert checkpoint_step(folder) % stopped.data["steps_per_epoch"] != 0
    return run(spec, folder, **options)


def assert_same(one, other):
    one, other = (record if isinstance(record, dict) else record.comparable() for record in (one, other))
    for key in ("epochs", "trace", "record"):  # small ones first, for readable messages
        assert one[key] == other[key]


def no_training(monkeypatch):
    def fail(*arguments):
        raise AssertionError("it trains")

    monkeypatch.setattr(loop, "Stepper", fail)
