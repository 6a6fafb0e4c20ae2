"""What survives a stop, a kill or a full disk."""

import errno
import json
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from runs import (
    PER_EPOCH,
    SMALL_CNN,
    Notes,
    Stop,
    StopAtEnd,
    assert_same,
    checkpoint_step,
    no_training,
    tiny,
    write_by_hand,
)

from mlrsnet import Schedule
from mlrsnet.nets import LSTMNet
from mlrsnet_lab import loop, records
from mlrsnet_lab.files import fallback
from mlrsnet_lab.lock import RunInUseError
from mlrsnet_lab.loop import run
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.stepper import Stepper
from mlrsnet_lab.watch import Watcher


def test_a_run_goes_on_on_the_device_it_was_begun_on_only(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, Settings(device="cpu"), watchers=[Stop()])
    path = tmp_path / "checkpoint.pt"
    torch.save(torch.load(path) | {"device": "cuda"}, path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(
        ValueError, match=r"was started on cuda, got the device cpu: continue with --device cuda, or delete"
    ):
        run(tiny(), tmp_path, Settings(device="cpu"))
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_run_does_not_go_on_with_other_parts_of_the_data(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, Settings(device="cpu"), watchers=[Stop()])
    data = json.loads((tmp_path / "record.json").read_text())
    data["task"] |= {"train": 100, "val": 200}
    write_by_hand(tmp_path / "record.json", json.dumps(data))
    with pytest.raises(
        ValueError, match=r"was started with \[100, 200, 61\] examples .*, got \[246, 53, 61\]: restore the"
    ):
        run(tiny(), tmp_path, Settings(device="cpu"))


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    run(tiny(epochs=1), tmp_path, Settings(device="cpu"))
    code = f"""
import sys
from pathlib import Path
from mlrsnet_lab.lock import held
with held(Path({str(tmp_path)!r})):
    print("held", flush=True)
    sys.stdin.read()
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "held\n"
    text = (tmp_path / "record.json").read_text()
    write_by_hand(tmp_path / "record.json", text.replace('"status": "finished"', '"status": "running"'))
    with pytest.raises(RunInUseError, match="is in use by another process: wait for it, or use another folder"):
        run(tiny(epochs=1), tmp_path, Settings(device="cpu"))
    child.kill()  # no farewell: the lock goes with the process
    child.communicate()
    assert run(tiny(epochs=1), tmp_path, Settings(device="cpu")).status == "finished"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_is_written_down_and_the_run_goes_on(number, tmp_path):
    notes, again = Notes(), Notes()
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, Settings(device="cpu"), watchers=[Stop(number), notes], labels={"row": "a"})
    stopped = records.read(tmp_path)
    assert stopped.status == "interrupted"
    assert notes.heard == [("begin", 0, 122), ("epoch", 1), ("end", "interrupted")]
    assert [line["epoch"] for line in stopped.epochs] == [1]
    assert stopped.result["epoch"] == 1
    assert checkpoint_step(tmp_path) == 64  # the step after the signal, in mid-epoch
    seconds, _ = torch.load(tmp_path / records.CHECKPOINT)["seconds"]
    record = run(tiny(), tmp_path, Settings(device="cpu"), watchers=[again])
    assert again.heard == [("begin", 64, 122), ("epoch", 2), ("end", "finished")]
    assert_same(record, run(tiny(), settings=Settings(device="cpu"), labels={"row": "a"}))
    assert record.data["timing"]["started"] == stopped.data["timing"]["started"]
    assert record.data["timing"]["seconds"] > seconds > 0
    assert not (tmp_path / records.CHECKPOINT).exists()


def test_a_second_ctrl_c_stops_at_once_and_the_last_checkpoint_holds(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, Settings(device="cpu", checkpoint_seconds=0), watchers=[Stop(times=2)])
    assert records.read(tmp_path).status == "interrupted"
    assert checkpoint_step(tmp_path) == PER_EPOCH  # that of the first epoch's end: step 64 was not waited for
    assert_same(run(tiny(), tmp_path, Settings(device="cpu")), run(tiny(), settings=Settings(device="cpu")))


def test_a_second_ctrl_c_before_any_checkpoint_begins_anew(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, Settings(device="cpu"), watchers=[Stop(times=2)])
    assert not (tmp_path / records.CHECKPOINT).exists()
    assert_same(run(tiny(), tmp_path, Settings(device="cpu")), run(tiny(), settings=Settings(device="cpu")))


def test_ctrl_c_between_two_epochs_is_heard(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, Settings(device="cpu"), watchers=[StopAtEnd(1)])
    assert checkpoint_step(tmp_path) == PER_EPOCH + 1
    assert_same(run(tiny(), tmp_path, Settings(device="cpu")), run(tiny(), settings=Settings(device="cpu")))


def test_ctrl_c_in_the_last_evaluation_is_heard_and_the_run_is_finished(tmp_path):
    """Else the next of many runs would begin, and Ctrl-C be pressed in vain."""
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, Settings(device="cpu"), watchers=[StopAtEnd(2)])
    assert_same(records.read(tmp_path), run(tiny(), settings=Settings(device="cpu")))


def end_on(monkeypatch, number, what):
    """Let something happen after step `number` of a training, once."""
    plain, done = Stepper.step, []

    def step(self):
        plain(self)
        if self.step_count == number and not done:
            done.append(number)
            what(self)

    monkeypatch.setattr(Stepper, "step", step)


@pytest.mark.parametrize("schedule", ["cosine", "val-strategy", "mlr-snet"])
@pytest.mark.parametrize("epoch", [2, 3])
def test_a_stop_on_the_last_step_of_an_epoch_leaves_no_epoch_out(epoch, schedule, tmp_path, monkeypatch):
    spec = tiny(epochs=3, schedule=schedule, lr=0.5)
    whole = run(spec, tmp_path / "whole", Settings(device="cpu"))
    end_on(monkeypatch, epoch * PER_EPOCH, lambda stepper: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(KeyboardInterrupt):
        run(spec, tmp_path / "run", Settings(device="cpu"))
    assert checkpoint_step(tmp_path / "run") == epoch * PER_EPOCH
    assert len(records.read(tmp_path / "run").epochs) == epoch - 1
    assert_same(run(spec, tmp_path / "run", Settings(device="cpu")), whole)


@pytest.mark.parametrize("epoch", [1, 2])
def test_an_evaluation_that_fails_after_a_checkpoint_is_made_again(epoch, tmp_path, monkeypatch):
    def out_of_memory(self, *parts):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(loop.Loop, "_now_and_then", lambda self: self.stepper.step_count == epoch * PER_EPOCH)
        end_on(patch, epoch * PER_EPOCH, lambda stepper: patch.setattr(Stepper, "evaluate", out_of_memory))
        with pytest.raises(RuntimeError, match="out of memory"):
            run(tiny(), tmp_path, Settings(device="cpu"))
    assert checkpoint_step(tmp_path) == epoch * PER_EPOCH
    assert_same(run(tiny(), tmp_path, Settings(device="cpu")), run(tiny(), settings=Settings(device="cpu")))


def test_ctrl_c_works_as_always_after_a_run_and_a_run_works_in_a_thread():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    found = []
    run(tiny(epochs=1), settings=Settings(device="cpu"))
    thread = threading.Thread(target=lambda: found.append(run(tiny(epochs=1), settings=Settings(device="cpu"))))
    thread.start()
    thread.join()
    assert found[0].status == "finished"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


KILLER = """
import os, random, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.loop import run
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.stepper import Stepper

spec, folder, chance, kills = RunSpec.from_file(Path(sys.argv[1])), Path(sys.argv[2]), random.Random(sys.argv[3]), 0
Stepper(spec, torch.device("cpu"))  # data and packages are read once for all of the processes below

def checkpoint():
    try:
        return (folder / "checkpoint.pt").stat().st_mtime_ns
    except FileNotFoundError:
        return None

while True:
    child = os.fork()
    if not child:
        run(spec, folder, Settings(device="cpu", checkpoint_seconds=0))
        os._exit(0)
    before, wait = checkpoint(), chance.uniform(0, 0.05)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if checkpoint() != before:  # some progress, so that it ends one day
            time.sleep(wait)
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            break
        time.sleep(0.001)
    else:
        break
    kills += 1
    if os.WIFEXITED(status):
        break
print(kills)
"""


def test_a_run_killed_again_and_again_ends_with_the_record_of_one_that_was_not(tmp_path):
    options = {"every": 10, "hidden": 8}
    spec = tiny(**SMALL_CNN, optimizer="sgdm", schedule="mlr-snet", schedule_options=options, batch_size=2, epochs=5)
    (tmp_path / "spec.json").write_text(spec.to_json())
    words = [sys.executable, "-c", KILLER, tmp_path / "spec.json", tmp_path / "run", "17"]
    kills = int(subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert kills >= 3
    whole = run(spec, tmp_path / "whole", Settings(device="cpu"))
    assert_same(records.read(tmp_path / "run"), records.read(tmp_path / "whole"))
    assert (tmp_path / "run/trace.json").read_bytes() == (tmp_path / "whole/trace.json").read_bytes()
    assert (tmp_path / "run/schedule.safetensors").read_bytes() == (
        tmp_path / "whole/schedule.safetensors"
    ).read_bytes()
    assert whole.data["total_steps"] == 5 * 123


def test_a_finished_run_is_returned_without_training_again(tmp_path, monkeypatch):
    record, notes = run(tiny(), tmp_path, Settings(device="cpu")), Notes()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    no_training(monkeypatch)
    assert_same(run(tiny(), tmp_path, Settings(device="cpu"), watchers=[notes]), record)
    assert notes.heard == [("begin", 122, 122), ("end", "finished")]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_run_of_before_a_setting_was_there_is_not_trained_again(tmp_path, monkeypatch):
    run(tiny(), tmp_path, Settings(device="cpu"))
    data = json.loads((tmp_path / "record.json").read_text())
    del data["spec"]["rays"]
    write_by_hand(tmp_path / "record.json", json.dumps(data))
    no_training(monkeypatch)
    assert run(tiny(), tmp_path, Settings(device="cpu")).status == "finished"


def test_a_folder_with_another_run_is_refused_naming_what_is_different(tmp_path):
    run(tiny(), tmp_path, Settings(device="cpu"))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"holds a run with another spec \(different: lr, seed\): use another folder"):
        run(tiny(lr=0.3, seed=5), tmp_path, Settings(device="cpu"))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def write_schedule(path, seed):
    torch.manual_seed(seed)
    Schedule(LSTMNet(4)).save(path)


def write_pictures(path, seed):
    random = np.random.default_rng(seed)
    arrays = {f"x_{part}": random.integers(0, 255, (24, 8, 8)).astype("uint8") for part in ("train", "val", "test")}
    np.savez(path, **arrays, **{f"y_{part}": np.arange(24) % 2 for part in ("train", "val", "test")})


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize(("write", "name"), [(write_schedule, "mine.safetensors"), (write_pictures, "mine.npz")])
def test_a_run_is_not_taken_for_one_of_a_file_that_has_changed(write, name, stopped, tmp_path):
    write(file := tmp_path / name, 0)
    learned = {"schedule": "learned", "schedule_options": {"schedule": str(file)}}
    spec = tiny(**learned) if name.endswith(".safetensors") else tiny(task=str(file), task_options={})
    if stopped:
        with pytest.raises(KeyboardInterrupt):
            run(spec, tmp_path / "run", Settings(device="cpu"), watchers=[StopAtEnd(1)])
    else:
        run(spec, tmp_path / "run", Settings(device="cpu"))
    write(file, 1)
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(
        ValueError, match=rf"run with another file \(changed since: .*{name}\): use another folder, or delete it"
    ):
        run(spec, tmp_path / "run", Settings(device="cpu"))
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    write(file, 0)
    assert run(spec, tmp_path / "run", Settings(device="cpu")).status == "finished"


def test_a_finished_run_of_a_file_that_is_gone_or_of_before_digests_is_returned(tmp_path, monkeypatch):
    write_schedule(file := tmp_path / "mine.safetensors", 0)
    spec = tiny(epochs=1, schedule="learned", schedule_options={"schedule": str(file)})
    run(spec, tmp_path / "run", Settings(device="cpu"))
    data = json.loads((tmp_path / "run/record.json").read_text())
    assert list(data["digests"]) == ["schedule"]
    no_training(monkeypatch)
    file.unlink()
    assert run(spec, tmp_path / "run", Settings(device="cpu")).status == "finished"
    write_schedule(file, 1)
    del data["digests"]
    write_by_hand(tmp_path / "run/record.json", json.dumps(data))
    assert run(spec, tmp_path / "run", Settings(device="cpu")).status == "finished"


@pytest.mark.parametrize("damage", ["bytes", "cut", "empty", "other", "other-shapes"])
def test_a_damaged_checkpoint_is_named_and_without_it_the_run_begins_anew(damage, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, Settings(device="cpu"), watchers=[Stop()])
    path = tmp_path / records.CHECKPOINT
    if damage == "other":
        torch.save({"weights": torch.ones(3)}, path)
    elif damage == "other-shapes":
        state = torch.load(path, weights_only=True)
        state["training"]["model"]["1.weight"] = torch.ones(3, 3)
        torch.save(state, path)
    else:
        whole = path.read_bytes()
        path.write_bytes({"bytes": b"not a checkpoint", "cut": whole[: len(whole) // 2], "empty": b""}[damage])
    with pytest.raises(
        ValueError, match=r"is not a checkpoint of this run \(\w+: .+\): delete it to start over"
    ) as found:
        run(tiny(), tmp_path, Settings(device="cpu"))
    assert str(path) in str(found.value)
    assert "\n" not in str(found.value)
    assert records.read(tmp_path).status == "interrupted"
    path.unlink()
    assert_same(run(tiny(), tmp_path, Settings(device="cpu")), run(tiny(), settings=Settings(device="cpu")))


def test_a_checkpoint_of_another_run_is_not_taken_for_this_ones(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny(seed=5), tmp_path, Settings(device="cpu"), watchers=[Stop()])
    (tmp_path / records.RECORD).unlink()
    with pytest.raises(ValueError, match="is not a checkpoint of this run"):
        run(tiny(seed=6), tmp_path, Settings(device="cpu"))


def test_a_folder_that_cannot_be_written_is_told_before_the_training(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    steps = []
    monkeypatch.setattr(Stepper, "step", lambda self: steps.append(self))
    with pytest.raises(OSError, match="file"):
        run(tiny(), tmp_path / "file" / "run", Settings(device="cpu"))
    assert not steps


@pytest.mark.parametrize("stays_full", [False, True])
def test_a_full_disk_costs_no_file_that_was_written_and_the_run_goes_on(stays_full, tmp_path, monkeypatch):
    write, checkpoints, notes = records.folder.write_atomically, [], Notes()

    def full(path, content, **options):
        checkpoints.extend([path] * (path.name == records.CHECKPOINT))
        if len(checkpoints) > 1 and (stays_full or path.name == records.CHECKPOINT):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, content, **options)

    with monkeypatch.context() as patch:
        for module in (records.folder, records.copies, fallback):
            patch.setattr(module, "write_atomically", full)
        with pytest.raises(OSError, match="No space left"):
            run(tiny(epochs=4), tmp_path, Settings(device="cpu", checkpoint_seconds=0), watchers=[notes])
    assert notes.heard[-1] == ("end", "failed")  # a progress bar is taken off the screen
    left = records.read(tmp_path)
    assert left.status == ("running" if stays_full else "failed")
    assert [line["epoch"] for line in left.epochs] == [1]
    assert checkpoint_step(tmp_path) == PER_EPOCH
    assert_same(
        run(tiny(epochs=4), tmp_path, Settings(device="cpu")), run(tiny(epochs=4), settings=Settings(device="cpu"))
    )


def test_an_error_in_a_watcher_is_written_down_and_the_run_goes_on(tmp_path):
    class Broken(Watcher):
        def epoch(self, line, losses, lrs):
            raise RuntimeError("no network")

    with pytest.raises(RuntimeError, match="no network"):
        run(tiny(), tmp_path, Settings(device="cpu"), watchers=[Broken()])
    failed = records.read(tmp_path)
    assert (failed.status, failed.data["error"]) == ("failed", "RuntimeError: no network")
    assert_same(run(tiny(), tmp_path, Settings(device="cpu")), run(tiny(), settings=Settings(device="cpu")))
