"""Ctrl-C and SIGTERM for a table, two processes that write the same, and a clock that goes backwards."""

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from runs import Stop, assert_same, tiny
from test_damage import filled

from mlrsnet_lab import records, run_record
from mlrsnet_lab.files.fallback import previous
from mlrsnet_lab.lock import RunInUseError, held_file
from mlrsnet_lab.loop import run
from mlrsnet_lab.meta_specs import GreedySpec, HorizonSpec
from mlrsnet_lab.meta_training import learn_greedy, learn_horizon
from mlrsnet_lab.report.tables import newest
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.table import fill as filling
from mlrsnet_lab.table.columns import Sizing
from mlrsnet_lab.table.file import PARTS, TrainingRow, TrainingTable
from mlrsnet_lab.table.fill import fill
from mlrsnet_lab.table.kinds import draw

COLUMN = Sizing("absolute", 0.1)
KINDS = [draw(number) for number in range(3)]


@pytest.fixture
def quick(monkeypatch):
    """Rows that take no time. What a row holds is tested elsewhere; here is when it is kept."""

    def row(where, kind, *others):
        arrays = (np.full(shape, kind.number, np.float32) for shape in ((1,), (1, 10)))
        return TrainingRow(kind.to_dict(), {}, *arrays)

    monkeypatch.setattr(filling, "train_row", row)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("quick")
def test_a_stop_keeps_every_row_that_is_done_and_the_same_call_goes_on(number, tmp_path):
    def stop(kind, fitness):
        if kind.number == 1:
            os.kill(os.getpid(), number)

    handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path / "table.npz", KINDS, [COLUMN], on_row=stop)
    assert TrainingTable.load(tmp_path / "table.npz").numbers == {0, 1}
    whole = fill(tmp_path / "whole.npz", KINDS, [COLUMN])
    parts = fill(tmp_path / "table.npz", KINDS, [COLUMN])
    for name in PARTS:
        np.testing.assert_array_equal(np.array(getattr(parts, name)), np.array(getattr(whole, name)))
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == handlers


HOLDER = """
import sys
from pathlib import Path
from mlrsnet_lab.lock import held_file
from mlrsnet_lab.settings import Settings
with held_file(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.usefixtures("quick")
def test_the_second_of_two_processes_that_write_the_same_refuses(tmp_path):
    out = tmp_path / "out.npz"
    words = [sys.executable, "-c", HOLDER, out]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "held\n"
        for write in (
            lambda: fill(out, KINDS, [COLUMN]),
            lambda: learn_greedy(GreedySpec(), out, Settings(device="cpu")),
            lambda: learn_horizon(HorizonSpec(), out, Settings(device="cpu")),
        ):
            with pytest.raises(
                RunInUseError, match=r"out.npz is in use by another process: wait for it, or use another file"
            ):
                write()
        first.kill()  # no farewell: the lock goes with the process, though its file stays
    assert (tmp_path / ".out.npz.lock").exists()
    assert len(fill(out, KINDS, [COLUMN])) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]


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


def test_a_file_from_the_future_is_replaced_like_any_other(tmp_path):
    path = tmp_path / "table.npz"
    filled(1).save(path)
    os.utime(path, (4e9, 4e9))
    filled(2).save(path)
    assert TrainingTable.load(path).numbers == {0, 1}
    assert TrainingTable.load(previous(path)).numbers == {0}
