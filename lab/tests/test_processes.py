"""The shares of several processes: together they are what one process has."""

import subprocess
import sys

import pytest
import torch
from picture_files import draw_folder
from runs import CPU

from mlrsnet_lab.datasets import load
from mlrsnet_lab.feeds import open_data
from mlrsnet_lab.lock import held
from mlrsnet_lab.models import build_image, build_rows, build_text
from mlrsnet_lab.processes import ALONE, Processes, joined

KINDS = ("digits", "diabetes", "ptb", "folder")


@pytest.fixture(params=KINDS)
def setting(request, texts, tmp_path):
    """A dataset of each kind, and a network for it in evaluation mode."""
    torch.manual_seed(0)
    if request.param == "folder":
        dataset = load(str(draw_folder(tmp_path / "animals", count=20)), size=8, val_size=6)
    else:
        dataset = load(request.param, root=texts)
    if request.param == "ptb":
        model = build_text("lstm", dataset.num_classes, hidden=4)
    elif request.param == "diabetes":
        model = build_rows("mlp", dataset.width, dataset.outputs, width=4)
    else:
        model = build_image("small_cnn", dataset.shape, dataset.num_classes, width=2)
    return dataset, model.eval()


def of(count):
    return [Processes(rank, count) for rank in range(count)]


@pytest.mark.parametrize("count", [2, 3])
def test_the_shares_of_every_batch_are_the_batch(count, setting):
    """The mean over processes of their mean losses, so that no example is left out or counted twice."""
    dataset, model = setting

    def losses(processes):
        data = open_data(dataset, 6, 5, 0, CPU, processes)
        found = []
        for feed in (data.train, data.val):
            for _ in range(3):
                feed.prepare()
                found.append(feed.loss(model).double().detach())
        return torch.stack(found)

    torch.testing.assert_close(sum(map(losses, of(count))) / count, losses(ALONE), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("part", ["train", "test"])
def test_every_example_is_evaluated_once(part, setting):
    """Their sums add up, also where the number of examples is no multiple of the processes."""
    dataset, model = setting

    def loss(processes):
        return open_data(dataset, 6, 5, 0, CPU, processes).evaluate(model, part).loss

    assert sum(map(loss, of(3))) == pytest.approx(loss(ALONE), rel=1e-5)


def test_the_shares_of_a_batch_keep_their_order_after_a_resume(tmp_path):
    dataset = load(str(draw_folder(tmp_path / "animals", count=20)), size=8, val_size=6)
    for processes in of(2):
        whole, resumed = (open_data(dataset, 6, 5, 0, CPU, processes).train for _ in range(2))
        for _ in range(4):
            whole.prepare()
        resumed.load_state_dict(whole.state_dict())
        for feed in (whole, resumed):
            feed.prepare()
        assert torch.equal(whole.images, resumed.images)
        assert len(whole.images) == 3


def test_too_few_pictures_to_validate_on_are_refused(tmp_path):
    dataset = load(str(draw_folder(tmp_path / "animals", count=20)), size=8, val_size=1)
    with pytest.raises(ValueError, match="the val data must have an example for each of 2 processes, got 1: hold out"):
        open_data(dataset, 6, 5, 0, CPU, Processes(0, 2))


LOCKER = """
import os, signal, sys, time
from pathlib import Path
from mlrsnet_lab.lock import held
with held(Path(sys.argv[1])):
    if not os.fork():  # as a process that reads pictures
        print("held", flush=True)
        time.sleep(60)
    signal.pause()
"""


def test_a_killed_training_can_be_restarted_while_its_readers_still_live(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", LOCKER, tmp_path], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert child.stdout.readline() == "held\n"
    child.kill()
    child.wait()
    try:
        with held(tmp_path):
            pass
    finally:
        subprocess.run(["kill", "-9", "--", f"-{child.pid}"], check=True)  # the reader
        child.stdout.close()


def test_processes_that_found_different_checkpoints_do_not_go_on():
    with pytest.raises(
        ValueError, match=r"the step must be the same in all processes, got \[40, 0\]: give them a folder"
    ):
        Processes(0, 2).check_same("the step", 40)  # the other one is silent here: nothing was found


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda:1", r"device must be auto, cpu or cuda for 2 processes, got 'cuda:1': each has its own GPU"),
        (
            "cuda",
            r"--nproc-per-node must be at most the number of GPUs, \d+, got 99: start fewer, or pass --device cpu",
        ),
    ],
)
def test_a_process_without_a_gpu_of_its_own_is_refused(device, message, monkeypatch):
    started = {"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 98, "LOCAL_WORLD_SIZE": 99, "TORCHELASTIC_RUN_ID": "it"}
    for name, value in started.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(ValueError, match=message), joined(device):
        pass
