"""A disk that is full and a folder that cannot be written: one error that says what to do, and nothing is lost."""

import errno
import os
import signal
from contextlib import contextmanager

import pytest
from commands import complaint, everything_below
from runs import assert_same, tiny
from test_damage import HORIZON

from mlrsnet import Schedule
from mlrsnet.files.writing import write_atomically
from mlrsnet.nets import LSTMNet
from mlrsnet_lab import records
from mlrsnet_lab.loop import run
from mlrsnet_lab.meta_training import learn
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.watch import Watcher

resource = pytest.importorskip("resource", reason="Windows limits no files")


@contextmanager
def room_for(size):
    """No file of this process may grow beyond `size` bytes: the system refuses, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN  # Python's own setting: an error, not a signal
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Fill(Watcher):
    """Leaves no room for a checkpoint after the first epoch."""

    def __init__(self):
        self.limit = None

    def epoch(self, line, losses, lrs):
        if line["epoch"] == 2:
            self.limit = room_for(6000)
            self.limit.__enter__()

    def end(self, record):
        if self.limit is not None:
            self.limit.__exit__(None, None, None)


FULL = r"File too large: .*{} \([\d,]+ bytes\) cannot be written; what was there is unchanged: free some space, and run the same"


def test_a_full_disk_is_one_error_with_the_file_and_what_to_do_and_the_file_stays(tmp_path):
    write_atomically(tmp_path / "a.json", b"old")
    with room_for(5), pytest.raises(OSError, match=FULL.format("a.json")) as found:
        write_atomically(tmp_path / "a.json", b"longer than before")
    assert found.value.errno == errno.EFBIG
    assert everything_below(tmp_path) == {tmp_path / "a.json": b"old"}


def test_a_run_on_a_full_disk_keeps_its_last_checkpoint_and_goes_on_to_the_same_bits(tmp_path):
    spec = tiny(epochs=3)
    with pytest.raises(OSError, match=FULL.format("(checkpoint.pt|record.copy.json)")):
        run(spec, tmp_path, Settings(device="cpu", checkpoint_seconds=0), watchers=[Fill()])
    assert not list(tmp_path.glob(".*"))
    assert records.read(tmp_path).data["sessions"]
    assert_same(run(spec, tmp_path, Settings(device="cpu")), run(spec, settings=Settings(device="cpu")))


def test_learning_on_a_full_disk_stops_and_goes_on_to_the_same_schedule(tmp_path):
    whole, _ = learn(HORIZON, tmp_path / "whole", Settings(device="cpu"))
    limit = room_for(2000)
    with pytest.raises(OSError, match=FULL.format("checkpoint.pt")):
        learn(
            HORIZON,
            tmp_path / "run",
            Settings(device="cpu", checkpoint_seconds=0),
            on_generation=lambda _: limit.__enter__(),
        )
    limit.__exit__(None, None, None)
    parts, _ = learn(HORIZON, tmp_path / "run", Settings(device="cpu"))
    assert parts.fingerprint() == whole.fingerprint()


CLOSED = "cannot be written; what was there is unchanged: make its folder writable, or choose another"


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--model", "mlp", "--epochs", 1, "--out", "file/run"),
        ("metatrain", "--epochs", 1, "--out", "file/learned.safetensors"),
        ("metatrain", "--objective", "horizon", "--generations", 1, "--out", "file/learned.safetensors"),
    ],
)
@pytest.mark.usefixtures("own_folder")
def test_a_place_that_cannot_be_written_is_told_before_any_work(words, capsys, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("where a folder should be")
    for function in (
        "mlrsnet_lab.stepper.Stepper.step",
        "mlrsnet_lab.horizon.HorizonTrainer.step",
    ):
        monkeypatch.setattr(function, lambda *arguments: pytest.fail("it trains"))
    err = complaint(capsys, *words, *(("--device", "cpu")), code=1)
    assert "file/" in err
    assert CLOSED in err
    assert list(everything_below(tmp_path)) == [tmp_path / "file"]


def test_a_read_only_folder_is_told_and_left_alone(tmp_path):
    tmp_path.chmod(0o555)
    if os.access(tmp_path, os.W_OK):
        pytest.skip("root may write everywhere; tools.faults makes a read-only disk")
    for write in (
        lambda: run(tiny(), tmp_path, Settings(device="cpu")),
        lambda: Schedule(LSTMNet(2)).save(tmp_path / "a.safetensors"),
    ):
        with pytest.raises(PermissionError, match=CLOSED):
            write()
    assert not list(tmp_path.iterdir())
