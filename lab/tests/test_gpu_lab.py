"""The lab's loop in CUDA graphs; run by hand on a machine with a GPU."""

import json
import os
import signal
import warnings
from dataclasses import replace

import pytest
import torch
from runs import LRS

from mlrsnet import Schedule
from mlrsnet.nets import LSTMNet
from mlrsnet_lab import graphs
from mlrsnet_lab import stepper as stepper_module
from mlrsnet_lab.baselines import RTHO
from mlrsnet_lab.devices import reproducible
from mlrsnet_lab.loop import run
from mlrsnet_lab.optimizers import EAGER
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper
from mlrsnet_lab.watch import Watcher
from mlrsnet_lab.width import POINTS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else None

SPEC = RunSpec(task="digits", model="small_cnn", epochs=3, batch_size=64, lr=0.1, precision="fp32", deterministic=True)
SCHEDULES = {
    "fixed": {},
    "multistep": {},
    "cosine": {"warmup": 0.2},
    "one-cycle": {},
    "val-strategy": {},
    "learned": {"schedule": "learned.safetensors"},
    "mlr-snet": {"every": 4},
}
OWN_OPTIMIZERS = [  # methods that are optimizers themselves: schedule, its options, the spec's optimizer
    ("l4", {}, "sgd"),
    ("l4", {}, "sgdm"),
    ("l4", {}, "adam"),
    ("hd", {"hyper_lr": 1e-4}, "sgd"),
    ("hd", {"hyper_lr": 1e-5}, "sgdm"),
    ("hd", {"hyper_lr": 1e-7}, "adam"),
    ("rtho", {"hyper_lr": 1e-5}, "sgd"),
    ("rtho", {"hyper_lr": 1e-6}, "sgdm"),
]
OPTIMIZERS = {"sgd": 0.1, "sgdm": 0.05, "adam": 0.003, "adamw": 0.003}


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    Schedule([LSTMNet() for _ in range(3)]).save(tmp_path / "learned.safetensors")


def spec_for(schedule, optimizer="sgd", **changes):
    return replace(
        SPEC,
        schedule=schedule,
        schedule_options=SCHEDULES[schedule],
        optimizer=optimizer,
        lr=OPTIMIZERS.get(optimizer, 0.01),
        **changes,
    )


@pytest.fixture
def texts(tmp_path):
    words = [f"word{number}" for number in range(14)]
    (tmp_path / "data" / "ptb").mkdir(parents=True)
    for part, lines in (("train", 300), ("valid", 60), ("test", 60)):
        generator = torch.Generator().manual_seed(lines)
        rows = [[words[i] for i in torch.randint(len(words), (12,), generator=generator)] for _ in range(lines)]
        if part == "train":
            rows[0] = sorted(set(words))
        (tmp_path / "data" / "ptb" / f"{part}.txt").write_text("\n".join(map(" ".join, rows)) + "\n")
    return tmp_path / "data"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_captured_training_takes_the_steps_of_an_eager_one(schedule, optimizer, monkeypatch):
    spec = spec_for(schedule, optimizer)
    captured = run(spec, settings=Settings(device="cuda"))
    monkeypatch.setattr(stepper_module, "WARM_UP", 10**9)
    eager = run(spec, settings=Settings(device="cuda"))
    assert captured.trace["loss"] == pytest.approx(eager.trace["loss"], rel=2e-3, abs=2e-4)
    assert captured.trace["lr"] == pytest.approx(eager.trace["lr"], rel=2e-3)
    assert captured.result["last"] == pytest.approx(eager.result["last"], abs=1.5)


@pytest.mark.parametrize("schedule", ["cosine", "learned", "mlr-snet"])
def test_the_gpu_follows_the_cpu(schedule):
    cpu = run(replace(spec_for(schedule), epochs=1), settings=Settings(device="cpu"))
    gpu = run(replace(spec_for(schedule), epochs=1), settings=Settings(device="cuda"))
    assert gpu.trace["loss"] == pytest.approx(cpu.trace["loss"], rel=2e-2)
    assert gpu.trace["lr"] == pytest.approx(cpu.trace["lr"], rel=2e-2)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("schedule", ["cosine", "learned", "mlr-snet"])
def test_the_deterministic_flag_gives_the_same_bits_again(schedule, precision):
    spec = spec_for(schedule, precision=precision)
    assert (
        run(spec, settings=Settings(device="cuda")).comparable()
        == run(spec, settings=Settings(device="cuda")).comparable()
    )


class Stop(Watcher):
    """Stops a run for good after an epoch."""

    def __init__(self, epoch):
        self.at = epoch

    def epoch(self, line, losses, lrs):
        if line["epoch"] == self.at:
            raise RuntimeError("stopped")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_stopped_run_goes_on_to_the_same_record(schedule, tmp_path):
    spec = spec_for(schedule)
    whole = run(spec, settings=Settings(device="cuda"))
    with pytest.raises(RuntimeError, match="stopped"):
        run(spec, tmp_path / "run", Settings(device="cuda", checkpoint_seconds=0), watchers=[Stop(2)])
    assert (tmp_path / "run" / "checkpoint.pt").exists()
    parts = run(spec, tmp_path / "run", Settings(device="cuda"))
    assert parts.comparable() == whole.comparable()
    assert json.loads((tmp_path / "run" / "record.json").read_text())["status"] == "finished"


class Press(Watcher):
    """Ctrl-C in the middle of an epoch."""

    def steps(self, step):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_run_goes_on_from_the_middle_of_an_epoch(schedule, tmp_path):
    spec = replace(spec_for(schedule), batch_size=16, epochs=2)
    whole = run(spec, settings=Settings(device="cuda"))
    with pytest.raises(KeyboardInterrupt):
        run(spec, tmp_path / "run", Settings(device="cuda"), watchers=[Press()])
    assert run(spec, tmp_path / "run", Settings(device="cuda")).comparable() == whole.comparable()


@pytest.mark.parametrize("epoch", [2, 3])
@pytest.mark.parametrize("schedule", ["cosine", "val-strategy", "mlr-snet"])
def test_a_run_stopped_on_the_last_step_of_an_epoch_leaves_no_epoch_out(schedule, epoch, tmp_path, monkeypatch):
    spec, plain = spec_for(schedule), Stepper.step
    whole = run(spec, settings=Settings(device="cuda"))

    def step(self):
        plain(self)
        if self.step_count == epoch * self.steps_per_epoch:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Stepper, "step", step)
        with pytest.raises(KeyboardInterrupt):
            run(spec, tmp_path / "run", Settings(device="cuda"))
    assert run(spec, tmp_path / "run", Settings(device="cuda")).comparable() == whole.comparable()


def test_validation_batches_of_another_size_are_captured_after_a_resume_too(tmp_path):
    spec = replace(spec_for("mlr-snet"), batch_size=400, epochs=6, deterministic=False)  # 297 pictures to validate
    with pytest.raises(RuntimeError, match="stopped"):
        run(spec, tmp_path / "run", Settings(device="cuda", checkpoint_seconds=0), watchers=[Stop(3)])
    assert run(spec, tmp_path / "run", Settings(device="cuda")).status == "finished"


@pytest.mark.filterwarnings("ignore:the loss does not fall")  # in a few dozen steps
@pytest.mark.parametrize("model", ["lstm", "transformer"])
@pytest.mark.parametrize("schedule", ["cosine", "mlr-snet", "learned"])
def test_language_models_are_captured_too(model, schedule, texts, monkeypatch):
    options = {"lstm": {"hidden": 16}, "transformer": {"width": 16, "heads": 2, "layers": 1}}[model]
    spec = replace(
        spec_for(schedule),
        task="ptb",
        model=model,
        model_options=options,
        batch_size=4,
        sequence_length=8,
        clip_norm=0.25,
    )
    spec = replace(spec, epochs=2, deterministic=False)
    captured = run(
        replace(spec, model_options={**options, "dropout": 0.0}), settings=Settings(device="cuda", root=texts)
    )
    monkeypatch.setattr(stepper_module, "WARM_UP", 10**9)
    eager = run(replace(spec, model_options={**options, "dropout": 0.0}), settings=Settings(device="cuda", root=texts))
    assert captured.trace["loss"] == pytest.approx(eager.trace["loss"], rel=2e-2)
    monkeypatch.setattr(stepper_module, "WARM_UP", 3)
    noisy = run(replace(spec, precision="bf16"), settings=Settings(device="cuda", root=texts))
    assert noisy.status == "finished"
    assert len(set(noisy.trace["loss"])) > 10  # dropout draws anew in every replay


SLOW_TO_BEGIN = ("l-dog", "mechanic-sgd", "mechanic-adam")
"""Their estimates of an LR begin near 0."""


@pytest.mark.parametrize("optimizer", EAGER)
def test_optimizers_that_read_numbers_on_the_host_still_use_captured_gradients(optimizer):
    if optimizer == "l-dog":
        pytest.importorskip("dog")
    record = run(replace(spec_for("fixed", optimizer), lr=LRS.get(optimizer, 0.05)), settings=Settings(device="cuda"))
    assert record.status == "finished"
    if optimizer not in SLOW_TO_BEGIN:
        assert record.trace["loss"][-1] < record.trace["loss"][0]


def own(schedule, options, optimizer):
    lr = {"sgd": 0.1, "sgdm": 0.01, "adam": 0.003}[optimizer]
    return replace(SPEC, schedule=schedule, schedule_options=options, optimizer=optimizer, lr=lr)


@pytest.mark.parametrize(("schedule", "options", "optimizer"), OWN_OPTIMIZERS)
def test_l4_hd_and_rtho_learn_and_end_alike_if_they_are_stopped(schedule, options, optimizer, tmp_path):
    spec = own(schedule, options, optimizer)
    whole = run(spec, settings=Settings(device="cuda"))
    assert whole.epochs[-1]["train_loss"] < whole.epochs[0]["train_loss"]
    with pytest.raises(RuntimeError, match="stopped"):
        run(spec, tmp_path / "run", Settings(device="cuda", checkpoint_seconds=0), watchers=[Stop(2)])
    assert run(spec, tmp_path / "run", Settings(device="cuda")).comparable() == whole.comparable()


@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize(("schedule", "options", "optimizer"), OWN_OPTIMIZERS)
def test_l4_hd_and_rtho_take_the_steps_of_an_eager_training(schedule, options, optimizer, clip_norm, monkeypatch):
    spec = replace(own(schedule, options, optimizer), epochs=1, clip_norm=clip_norm)
    captured = run(spec, settings=Settings(device="cuda"))
    monkeypatch.setattr(stepper_module, "WARM_UP", 10**9)
    eager = run(spec, settings=Settings(device="cuda"))
    assert captured.trace["loss"] == pytest.approx(eager.trace["loss"], rel=1e-2, abs=1e-3)
    assert captured.trace["lr"] == pytest.approx(eager.trace["lr"], rel=1e-2)


TWICE = {  # networks whose first steps RTHO differentiates twice: batch norms, shared and carried state
    "digits": {"task": "digits", "model": "resnet18"},
    "text": {
        "task": "ptb",
        "model": "lstm",
        "model_options": {"hidden": 16, "dropout": 0.0},
        "batch_size": 4,
        "sequence_length": 8,
    },
}


def slopes(spec, root, steps=12):
    """What RTHO finds in each step of a first epoch: the product of everything that its two passes compute."""
    with reproducible(DEVICE, True):
        stepper = Stepper(spec, DEVICE, root)
        assert steps <= stepper.steps_per_epoch  # the trace holds one epoch
        found = []
        for _ in range(steps):
            stepper.step()
            found.append(stepper.method.optimizer.last_hypergradient)
        return stepper, found[1:]


@pytest.mark.parametrize("optimizer", ["sgd", "sgdm"])
@pytest.mark.parametrize("network", TWICE)
def test_both_passes_of_rtho_are_captured_and_find_what_eager_ones_do(network, optimizer, texts, monkeypatch):
    spec = replace(own("rtho", {"hyper_lr": 1e-7}, optimizer), lr=0.01, **TWICE[network])
    stepper, captured = slopes(spec, texts)
    assert stepper.graphs.calls[graphs.HELD_OUT][1] is not None
    assert stepper.graphs.calls["train"][1] is not None
    monkeypatch.setattr(stepper_module, "WARM_UP", 10**9)
    _, eager = slopes(spec, texts)
    assert captured == pytest.approx(eager, rel=1e-2)
    monkeypatch.setattr(RTHO, "_second", lambda self, parameters, graph: [torch.zeros_like(p) for p in parameters])
    _, without = slopes(spec, texts)
    assert without != pytest.approx(eager, rel=1e-2)  # what it would look like


def test_a_derivative_that_begins_anew_stays_in_its_graph():
    with reproducible(DEVICE, False):
        stepper = Stepper(replace(own("rtho", {"hyper_lr": 1e-5}, "sgd"), deterministic=False), DEVICE)
        for _ in range(7):
            stepper.step()
        kept = stepper.graphs.calls["train"][1]
        assert kept is not None
        with pytest.warns(UserWarning, match="restarts the derivative from 0"):
            stepper.method.optimizer._forget()
        for _ in range(3):
            stepper.step()
        assert stepper.graphs.calls["train"][1] is kept


@pytest.mark.parametrize(("schedule", "options"), [("hd", {"hyper_lr": 1e-4}), ("rtho", {"hyper_lr": 1e-5})])
def test_the_gpu_adapts_the_lr_as_the_cpu_does(schedule, options):
    spec = replace(own(schedule, options, "sgd"), epochs=1)
    cpu, gpu = (run(spec, settings=Settings(device=device)) for device in ("cpu", "cuda"))
    assert gpu.trace["lr"] == pytest.approx(cpu.trace["lr"], rel=2e-2)
    assert len(set(gpu.trace["lr"])) > 3


@pytest.mark.parametrize("model", ["lstm", "transformer"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_rtho_differentiates_language_models_twice_on_a_gpu(model, precision, texts):
    options = {"lstm": {"hidden": 16}, "transformer": {"width": 16, "heads": 2, "layers": 1}}[model]
    spec = replace(own("rtho", {"hyper_lr": 1e-4}, "sgd"), task="ptb", model=model, model_options=options, batch_size=4)
    spec = replace(spec, sequence_length=8, clip_norm=0.25, epochs=1, deterministic=False, precision=precision)
    record = run(spec, settings=Settings(device="cuda", root=texts))
    assert record.status == "finished"
    assert len(set(record.trace["lr"])) > 3


@pytest.mark.parametrize("schedule", ["cosine", "learned", "mlr-snet"])
def test_plain_steps_never_wait_for_the_device(schedule):
    with reproducible(DEVICE, False):
        stepper = Stepper(replace(spec_for(schedule), deterministic=False, precision="auto"), DEVICE)
        for _ in range(6):
            stepper.step()
        torch.cuda.synchronize()
        try:
            for _ in range(6):
                set_sync_mode("default" if stepper.method.is_due() else "error")
                stepper.step()
        finally:
            set_sync_mode("default")


def set_sync_mode(mode):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls it a prototype
        torch.cuda.set_sync_debug_mode(mode)


def test_the_width_of_a_minimum_is_measured_where_channels_come_last():
    record = run(replace(SPEC, model="resnet18", epochs=1, rays=2), settings=Settings(device="cuda"))
    assert record.status == "finished"
    for part in ("train", "test"):
        assert [len(ray) for ray in record.data["rays"][part]] == [POINTS] * 2
        assert len({ray[0] for ray in record.data["rays"][part]}) == 1  # every ray begins at the solution


def test_augmented_pictures_are_captured(tmp_path):
    import numpy as np

    rng = np.random.default_rng(0)
    labels = np.arange(600) % 3
    images = (rng.integers(0, 60, (600, 16, 16, 3)) + 60 * labels[:, None, None, None]).astype(np.uint8)
    file = tmp_path / "own.npz"
    np.savez(file, x_train=images[:500], y_train=labels[:500], x_test=images[500:], y_test=labels[500:])
    spec = replace(
        SPEC, task=str(file), task_options={"val_size": 100, "pad": 2, "flip": True}, model="resnet18", epochs=2
    )
    spec = replace(spec, batch_size=32, deterministic=False, precision="auto")
    record = run(spec, settings=Settings(device="cuda"))
    assert record.result["last"] > 60
