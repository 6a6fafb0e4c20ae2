"""Commands that are killed inside a write, or at any other time, and run again. `tools.faults` does more of it."""

import json
import subprocess
import sys

import pytest
from commands import everything_below

from mlrsnet_lab.lock import held, held_file
from tools.forked import plain_name
from tools.strikes import differing_bits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads /proc")


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param(("train",), id="train"),
        pytest.param(("metatrain greedy", "metatrain horizon"), id="metatrain", marks=pytest.mark.nightly),
    ],
)
def test_a_command_that_is_killed_or_stopped_goes_on_to_the_same_bits(commands, tmp_path):
    """One process for all, which imports torch once."""
    out = tmp_path / "faults.json"
    words = ["--kills", "3", "--without-disks", "--out", out, *(word for name in commands for word in ("--only", name))]
    done = subprocess.run([sys.executable, "-m", "tools.faults", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for found in json.loads(out.read_text())["commands"].values():
        struck = [found[fault] for fault in ("SIGKILL", "SIGTERM", "SIGINT")]
        assert [line["strikes"] for line in struck] == [3, 1, 1]
        assert [line["differing_bits"] for line in struck] == [0, 0, 0]
        assert [line["left_over"] for line in struck] == [[], [], []]


def test_the_experiment_would_see_a_bit_that_differs():
    assert differing_bits({"a": b"\0\0"}, {"a": b"\0\1"}) == 1
    assert differing_bits({"a": b"\0"}, {}) == 8
    assert plain_name(".checkpoint.pt.x1_y2z3.part") == "checkpoint.pt"
    assert plain_name(".learned.safetensors.json.x1.part") == "learned.safetensors.json"


KILLED = """
import os, signal, sys
from pathlib import Path
from mlrsnet.files.writing import write_atomically

def killed(at):
    calls = []
    def watched(plain):
        def call(*arguments, **options):
            calls.append(plain)
            if len(calls) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(*arguments, **options)
        return call
    for name in ("fsync", "chmod", "replace"):
        setattr(os, name, watched(getattr(os, name)))

target = Path(sys.argv[1])
for at in range(1, 6):
    write_atomically(target, b"old")
    child = os.fork()
    if not child:
        killed(at)
        write_atomically(target, b"new" * 100_000)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), target.read_bytes()[:3].decode())
"""


def test_a_file_is_the_old_or_the_new_one_wherever_its_writer_is_killed(tmp_path):
    target = tmp_path / "there" / "file.json"
    done = subprocess.run([sys.executable, "-c", KILLED, target], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-9 old", "-9 old", "-9 old", "-9 new", "0 new"]
    assert len(everything_below(tmp_path / "there")) == 4  # with what the first three had written
    with held(target.parent):
        assert list(everything_below(tmp_path / "there")) == [target]


def test_who_writes_a_file_removes_what_killed_writers_of_it_left_and_nothing_else(tmp_path):
    mine, other = tmp_path / ".table.npz.abc.part", tmp_path / ".other.npz.abc.part"
    for path in (mine, other, tmp_path / "table.npz", tmp_path / ".tablecloth.part"):
        path.write_bytes(b"")
    with held_file(tmp_path / "table.npz"):
        left = {path.name for path in tmp_path.iterdir()}
    assert left == {".other.npz.abc.part", "table.npz", ".tablecloth.part", ".table.npz.lock"}
    assert not (tmp_path / ".table.npz.lock").exists()
