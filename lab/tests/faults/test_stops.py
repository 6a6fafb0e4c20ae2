"""Two processes that write the same, and a clock that goes backwards."""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from runs import Stop, assert_same, tiny

from mlrsnet_lab import records, run_record
from mlrsnet_lab.lock import RunInUseError, held_file
from mlrsnet_lab.loop import run
from mlrsnet_lab.meta_specs import GreedySpec, HorizonSpec
from mlrsnet_lab.meta_training import learn_greedy, learn_horizon
from mlrsnet_lab.report.tables import newest
from mlrsnet_lab.settings import Settings

HOLDER = """
import sys
from pathlib import Path
from mlrsnet_lab.lock import held_file
from mlrsnet_lab.settings import Settings
with held_file(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_of_two_processes_that_write_the_same_refuses(tmp_path):
    out = tmp_path / "out.safetensors"
    words = [sys.executable, "-c", HOLDER, out]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "held\n"
        for write in (
            lambda: learn_greedy(GreedySpec(), out, Settings(device="cpu")),
            lambda: learn_horizon(HorizonSpec(), out, Settings(device="cpu")),
        ):
            with pytest.raises(
                RunInUseError, match=r"out.safetensors is in use by another process: wait for it, or use another file"
            ):
                write()
        first.kill()  # no farewell: the lock goes with the process, though its file stays
    assert (tmp_path / ".out.safetensors.lock").exists()
    with held_file(out):
        pass
    assert not list(tmp_path.iterdir())


def test_a_lock_file_that_was_removed_meanwhile_is_not_trusted(tmp_path):
    """The one who held it has removed it; a third process would lock a new file of that name."""
    with held_file(tmp_path / "a"):
        (tmp_path / ".a.lock").unlink()
        with held_file(tmp_path / "a"):
            pass
    with held_file(tmp_path / "a"), pytest.raises(RunInUseError), held_file(tmp_path / "a"):
        pass


class BackwardsClock(datetime):
    """Every look at it is an hour before the last one."""

    looks = 0

    @classmethod
    def now(cls, tz=None):
        cls.looks += 1
        return datetime(2026, 11, 15, tzinfo=UTC) - timedelta(hours=cls.looks)


def test_a_clock_that_goes_backwards_changes_no_bit_and_no_duration(tmp_path, monkeypatch):
    monkeypatch.setattr(run_record, "datetime", BackwardsClock)
    seconds = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(seconds)))
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, Settings(device="cpu", checkpoint_seconds=0), watchers=[Stop()])
    record = run(tiny(), tmp_path, Settings(device="cpu"))
    timing = record.data["timing"]
    assert timing["ended"] < timing["started"]  # as the clock said, and nothing is computed from it
    assert 0 < timing["train_seconds"] <= timing["seconds"]
    assert all(line["seconds"] > 0 for line in record.epochs)
    assert newest([timing["started"], timing["ended"]]) == "2026-11-14 23:00 UTC"
    monkeypatch.undo()
    assert_same(record, run(tiny(), settings=Settings(device="cpu")))


def test_a_pack_of_the_same_time_and_size_as_before_is_read_anew(tmp_path):
    def leave(name):
        data = {"format": 1, "status": "finished", "spec": {}, "labels": {"row": name}}
        records.write(records.Record(data, folder=tmp_path / "a"))
        records.pack(tmp_path, records.runs(tmp_path))
        os.utime(tmp_path / records.PACK, (10**9, 10**9))
        return records.read(tmp_path / "a").data["labels"]["row"]

    assert [leave("one"), leave("two")] == ["one", "two"]
