"""Real trainings under torchrun: what survives a kill and a stop, and what one process would have done."""

import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from runs import assert_same, checkpoint_step
from sklearn.datasets import load_sample_images

from mlrsnet_lab import records
from mlrsnet_lab.loop import run
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec

WORKER = Path(__file__).parent / "support" / "torchrun_worker.py"
PICTURES = "--option task.size=16 --option task.val_size=8 --batch-size 8"
COMMANDS = {
    "folder": f"train --task FOLDER {PICTURES} --model small_cnn --option model.width=2 --optimizer sgdm --epochs 3 "
    "--schedule mlr-snet --option schedule.every=2 --option schedule.hidden=4 --out OUT/folder",
    "text": "train --task ptb --batch-size 4 --model lstm --option model.hidden=6 --schedule universal --epochs 2 --out OUT/text",
    "alike": f"train --task FOLDER {PICTURES} --model mlp --option model.width=8 --epochs 2 "
    "--schedule mlr-snet --option schedule.every=2 --option schedule.scale=0.1 --out OUT/alike",
    "meta": "metatrain --classes 01 --model mlp --epochs 2 --out OUT/learned.safetensors",
}
"""Batch norm and meta-updates; a memory and dropout; neither, so that one process does the same; a schedule to write."""

REFUSED = {
    "train --batch-size 9": "batch_size must be a multiple of the number of processes, 2, got 9: .*; pass 8, or start another",
    "train --schedule rtho": "schedule 'rtho' must train in one process, got 2: it differentiates twice, which DDP cannot",
    "train --option task.val_size=1": "val_size must be 297 for digits, got 1: leave it out",
    "metatrain --objective horizon": "horizon must be learned in one process, got 2 from torchrun: .* --executor ray",
    "reproduce table1": "mlrsnet reproduce must be one process, got 2 from torchrun: start it without torchrun",
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Pieces of two photographs as JPEGs: two classes, 24 to train and validate on and 8 to test on of each."""
    place = tmp_path_factory.mktemp("pictures")
    for name, pixels in zip(("flower", "temple"), reversed(load_sample_images().images), strict=True):
        for number in range(32):
            top, left = 40 * (number // 8), 60 * (number % 8)
            folder = place / "folder" / ("train" if number < 24 else "test") / name
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels[top : top + 80, left : left + 80]).save(folder / f"{number}.jpg")
    return place


def write_plan(out, pictures, texts, commands, faults, refused=()):
    """What the worker is to do; returns its path."""

    def words(line):
        known = {"FOLDER": str(pictures / "folder"), "OUT/": f"{out}/"}
        for name, value in known.items():
            line = line.replace(name, value)
        return [*line.split(), "--device", "cpu", "--data", str(texts)]

    plan = {"commands": list(map(words, commands)), "faults": faults, "refused": list(map(words, refused))}
    (out / "plan.json").write_text(json.dumps(plan))
    return out / "plan.json"


def launch(plan, *options):
    """torchrun with the worker."""
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *options, WORKER, plan],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(launched, code=0):
    """What it printed."""
    try:
        out, err = launched.communicate(timeout=300)
    finally:
        launched.kill()
    assert launched.returncode == code, err[-4000:]
    return out, err


def torchrun(out, pictures, texts, *options, commands=None, faults=(), refused=(), processes=2, code=0):
    """Run a plan on one machine. A free port, so that tests can run side by side."""
    plan = write_plan(out, pictures, texts, commands or COMMANDS.values(), faults, refused)
    return end(launch(plan, "--standalone", f"--nproc-per-node={processes}", *options), code)


@pytest.fixture(scope="module")
def undisturbed(pictures, texts, tmp_path_factory):
    """The folder of the trainings that nothing happened to, and what torchrun printed."""
    out = tmp_path_factory.mktemp("undisturbed")
    return out, torchrun(out, pictures, texts, refused=[f"{words} --out OUT/refused" for words in REFUSED])


def test_only_one_process_prints_and_writes(undisturbed):
    out, (printed, _) = undisturbed
    assert printed.count("40 train, 8 val, 16 test") == 2  # of two trainings
    assert printed.count("schedule: ") == 1
    files = {"epochs.jsonl", "record.json", "schedule.safetensors", "trace.json"}
    copies = {"record.copy.json", "schedule.copy.safetensors"}
    assert {path.name for path in (out / "folder").iterdir()} == files | copies


def test_what_several_processes_cannot_do_is_refused(undisturbed):
    out, _ = undisturbed
    for rank in range(2):
        errors = (out / f"refused{rank}.txt").read_text()
        for message in REFUSED.values():
            assert re.search(f"mlrsnet: error.*: .*{message}", errors)


def test_two_processes_train_as_one_does_on_the_whole_batch(undisturbed, pictures):
    """Without batch norm and dropout, only roundings differ."""
    both = records.read(undisturbed[0] / "alike")
    alone = run(replace(RunSpec.from_dict(both.spec), task=str(pictures / "folder")), settings=Settings(device="cpu"))
    for one, other in zip(alone.epochs, both.epochs, strict=True):
        for name in ("train_loss", "val_loss", "test_loss", "lr", "test_metric", "hypergradient"):
            assert one[name] == pytest.approx(other[name], rel=1e-3)
    assert alone.trace["loss"] == pytest.approx(both.trace["loss"], rel=1e-3)
    assert (both.data["processes"], alone.data.get("processes")) == (2, None)


def fault(attempt, command, step, rank, kind):
    return {"attempt": attempt, "command": list(COMMANDS).index(command), "step": step, "rank": rank, "kind": kind}


@pytest.mark.nightly
def test_killed_and_stopped_trainings_end_with_the_records_of_undisturbed_ones(pictures, texts, undisturbed, tmp_path):
    faults = [fault(0, "folder", 7, 0, "kill"), fault(1, "folder", 12, 0, "stop_torchrun")]
    torchrun(tmp_path, pictures, texts, "--max-restarts=3", faults=faults, code=1)
    stopped = records.read(tmp_path / "folder")
    assert (stopped.status, checkpoint_step(tmp_path / "folder")) == ("interrupted", 12)
    first, killed = (session["from_step"] for session in stopped.data["sessions"])
    assert first == 0
    assert 5 <= killed < 7  # the end of an epoch; a slow machine saves more often
    with pytest.raises(ValueError, match=r"started with 2 processes, got 1: continue with 2, or delete checkpoint.pt"):
        run(RunSpec.from_dict(stopped.spec), tmp_path / "folder", Settings(device="cpu"))

    torchrun(tmp_path, pictures, texts, "--max-restarts=1", faults=[fault(0, "text", 8, 1, "ask")])
    sessions = records.read(tmp_path / "text").data["sessions"]
    assert [session["from_step"] for session in sessions] == [0, 8]  # both stopped there, though only one was asked
    whole = undisturbed[0]
    for name in ("folder", "text", "alike"):
        assert_same(records.read(tmp_path / name), records.read(whole / name))
    for name in ("folder/schedule.safetensors", "learned.safetensors"):
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()


VIT = "train --model vit --optimizer adam --lr 0.003 --batch-size 60 --epochs 3 --out OUT/run"
"""Its gradients arrive in another order than that of its parameters."""

KILLED = {"whole": [], "killed": [fault(0, "folder", 27, 1, "kill")]}


@pytest.mark.nightly
def test_three_processes_add_up_gradients_in_the_same_order_after_a_kill(pictures, texts, tmp_path):
    """Sums of three numbers depend on their order; DDP changes its own after the first step of a process."""
    for name, faults in KILLED.items():
        (tmp_path / name).mkdir()
        torchrun(tmp_path / name, pictures, texts, "--max-restarts=1", commands=[VIT], faults=faults, processes=3)
    whole, killed = (records.read(tmp_path / name / "run") for name in KILLED)
    assert (len(whole.data["sessions"]), len(killed.data["sessions"])) == (1, 2)
    assert_same(whole, killed)


@pytest.mark.nightly
def test_two_machines_go_on_after_a_kill_on_one_of_them(pictures, texts, tmp_path):
    """Two torchruns in place of machines. Only one of them counts the restart."""
    for name, faults in KILLED.items():
        (tmp_path / name).mkdir()
        plan = write_plan(tmp_path / name, pictures, texts, [VIT], faults)
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        meet = ("--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", f"--rdzv-id={name}")
        machines = [launch(plan, "--nnodes=2", "--nproc-per-node=1", "--max-restarts=3", *meet) for _ in range(2)]
        for machine in machines:
            end(machine)
    whole, killed = (records.read(tmp_path / name / "run") for name in KILLED)
    assert (len(whole.data["sessions"]), len(killed.data["sessions"])) == (1, 2)
    assert_same(whole, killed)


LAYER_NORM = {"model": "small_cnn", "model_options": {"width": 4, "norm": "layer"}, "epochs": 2}
LEARNED = {"schedule": "learned", "schedule_options": {"schedule": "universal"}}
METHODS = {
    "hd": {"schedule": "hd", "lr": 0.05},
    "l4": {"schedule": "l4", "optimizer": "adam"},
    "val-strategy": {"schedule": "val-strategy", "optimizer": "sgdm", "lr": 0.05, "clip_norm": 0.5},
    "schedule-free": {"schedule": "fixed", "optimizer": "schedule-free-sgd", "lr": 0.5},
    "prodigy": {"optimizer": "prodigy", "lr": 1.0},
    "authors": {**LEARNED, "schedule_options": {"schedule": "cifar10-resnet18", "gamma": "authors"}},
    "measured": {**LEARNED, "optimizer": "sgdm", "rays": 1},
    "numbers": {**LEARNED, "task": "diabetes", "model": "mlp", "model_options": {"width": 8}, "batch_size": 16},
    "start": {"start": LAYER_NORM, "task_options": {"classes": [5, 6, 7]}, "optimizer": "adamw", "lr": 1e-3},
}


@pytest.mark.nightly
def test_every_kind_of_method_trains_in_two_processes_as_in_one(pictures, tmp_path):
    specs = {name: RunSpec(**(LAYER_NORM | changes)) for name, changes in METHODS.items()}
    for name, spec in specs.items():
        (tmp_path / f"{name}.json").write_text(spec.to_json())
    commands = [f"train {tmp_path}/{name}.json --out OUT/{name}" for name in specs]
    torchrun(tmp_path, pictures, tmp_path / "data", commands=commands)
    for name, spec in specs.items():
        alone = run(spec, settings=Settings(device="cpu", root=tmp_path / "data")).epochs[-1]
        both = records.read(tmp_path / name).epochs[-1]
        for number in ("train_loss", "val_loss", "test_loss", "lr"):
            assert both[number] == pytest.approx(alone[number], rel=2e-3), (name, number)
