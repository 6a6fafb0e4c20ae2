"""The training loop: what is trained, what is written down, and what survives a stop, a kill or a full disk."""

import copy
import errno
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import mlrsnet
from mlrsnet import Gamma, LSTMNet, Schedule
from mlrsnet.gamma import STATISTICS
from mlrsnet.lab import averaging, deciders, records, trainer
from mlrsnet.lab.deciders import Decider
from mlrsnet.lab.feeds import Score
from mlrsnet.lab.lock import RunInUseError
from mlrsnet.lab.optimizers import OPTIMIZERS
from mlrsnet.lab.records import Record
from mlrsnet.lab.spec import RunSpec
from mlrsnet.lab.trainer import resolve, run, summarise
from mlrsnet.lab.training import Training
from mlrsnet.lab.watch import Watcher

CPU = torch.device("cpu")
PER_EPOCH = 61  # steps: watchers are told at step 64, the third of the second epoch
TINY = {
    "task_options": {"classes": [0, 1]},
    "model": "mlp",
    "model_options": {"width": 8, "depth": 1},
    "batch_size": 4,
    "epochs": 2,
    "lr": 0.02,
}
ALONE = {"l4": ("sgd", "sgdm", "adam"), "hd": ("sgd", "sgdm", "adam"), "rtho": ("sgd", "sgdm")}  # and no others
SMALL_CNN = {"model": "small_cnn", "model_options": {"width": 2}}
LRS = {"adam": 0.003, "adamw": 0.003, "schedule-free-adamw": 0.003, "prodigy": 1.0}
WORDS = "a rose is a rose and a daisy is a daisy but no rose is a daisy\n"


def tiny(**changes):
    return RunSpec(**(TINY | changes))


@pytest.fixture(scope="session")
def schedule_file(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("schedules") / "made-up.safetensors"
    Schedule(LSTMNet()).save(path)
    return str(path)


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """A root with a small text where Penn Treebank would be."""
    root = tmp_path_factory.mktemp("data")
    (root / "ptb").mkdir()
    for name, times in (("train", 60), ("valid", 12), ("test", 15)):
        (root / "ptb" / f"{name}.txt").write_text(WORDS * times)
    return root


def of_text(model="lstm", **changes):
    size = {"hidden": 6} if model == "lstm" else {"width": 8, "layers": 1, "heads": 2}
    values = {"task": "ptb", "model": model, "model_options": size, "batch_size": 2, "sequence_length": 5, "epochs": 2}
    return RunSpec(**(values | changes))


class Stop(Watcher):
    """Presses Ctrl-C in the middle of an epoch."""

    def __init__(self, number=signal.SIGINT, times=1):
        self.number, self.times = number, times

    def steps(self, step):
        for _ in range(self.times):
            os.kill(os.getpid(), self.number)


class Notes(Watcher):
    """Writes down what it hears."""

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


def checkpoint_step(folder):
    return torch.load(folder / records.CHECKPOINT, weights_only=True)["training"]["step"]


def stop_and_resume(spec, folder, **options):
    """Ctrl-C in the middle of an epoch, then again to the end."""
    with pytest.raises(KeyboardInterrupt):
        run(spec, folder, watchers=[Stop()], **options)
    stopped = records.read(folder)
    assert stopped.status == "interrupted"
    assert checkpoint_step(folder) % stopped.data["steps_per_epoch"] != 0
    return run(spec, folder, **options)


def assert_same(one, other):
    one, other = (record if isinstance(record, dict) else record.comparable() for record in (one, other))
    for key in ("epochs", "trace", "record"):  # the smaller ones first, for a message that can be read
        assert one[key] == other[key]


def no_training(monkeypatch):
    def fail(*arguments):
        raise AssertionError("it trains")

    monkeypatch.setattr(trainer, "Training", fail)


# Every schedule with every optimizer


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("schedule", deciders.SCHEDULES)
def test_every_schedule_and_optimizer_learns_and_ends_alike_if_it_is_stopped(
    schedule, optimizer, schedule_file, tmp_path
):
    options = {
        "learned": {"schedule": schedule_file},
        "mlr-snet": {"every": 10, "hidden": 8, "scale": 0.1},
        "rtho": {"hyper_lr": 1e-5},
    }.get(schedule, {})
    spec = tiny(schedule=schedule, schedule_options=options, optimizer=optimizer, lr=LRS.get(optimizer, 0.02))
    if optimizer not in ALONE.get(schedule, OPTIMIZERS):
        with pytest.raises(TypeError, match=f"optimizer must be one that schedule '{schedule}' has a form for, got"):
            run(spec, device="cpu")
        return
    if schedule == "mlr-snet" and optimizer in ("schedule-free-sgd", "schedule-free-adamw", "prodigy"):
        with pytest.raises(TypeError, match="optimizer must take steps that are linear in its LR"):
            run(spec, device="cpu")
        return
    whole = run(spec, device="cpu")
    assert whole.status == "finished"
    assert [line["epoch"] for line in whole.epochs] == [1, 2]
    assert whole.trace["step"] == list(range(2 * PER_EPOCH))
    assert all(math.isfinite(number) for numbers in whole.trace.values() for number in numbers)
    assert whole.epochs[1]["train_loss"] < whole.epochs[0]["train_loss"]
    assert ("gamma" in whole.epochs[0]) == (schedule in ("learned", "mlr-snet"))
    assert_same(stop_and_resume(spec, tmp_path / "run", device="cpu"), whole)
    assert_same(records.read(tmp_path / "run"), whole)


@pytest.mark.parametrize("model", ["lstm", "transformer"])
@pytest.mark.parametrize(
    ("schedule", "optimizer"),
    [
        ("cosine", "adam"),
        ("val-strategy", "sgdm"),
        ("learned", "sgd"),
        ("mlr-snet", "sgdm"),
        ("fixed", "schedule-free-adamw"),
        ("l4", "adam"),
        ("hd", "adam"),
        ("rtho", "sgd"),
    ],
)
def test_text_is_learned_and_ends_alike_if_it_is_stopped(model, schedule, optimizer, schedule_file, texts, tmp_path):
    learned = {"schedule": schedule_file, "scale": 0.02}
    careful = {"hyper_lr": 1e-5}  # at 1e-3 a transformer diverges with some versions of torch
    mlr_snet = {"every": 10, "hidden": 8, "scale": 0.1}
    options = {"learned": learned, "mlr-snet": mlr_snet, "rtho": careful}.get(schedule, {})
    spec = of_text(model, schedule=schedule, schedule_options=options, optimizer=optimizer, lr=LRS.get(optimizer, 0.1))
    whole = run(spec, root=texts, device="cpu")
    assert whole.data["metric"] == {"name": "perplexity", "unit": "", "better": "lower"}
    assert whole.epochs[-1]["train_loss"] < whole.trace["loss"][0]
    for part in ("val", "test"):
        assert whole.epochs[-1][f"{part}_metric"] == pytest.approx(math.exp(whole.epochs[-1][f"{part}_loss"]), rel=1e-5)
    assert_same(stop_and_resume(spec, tmp_path / "run", root=texts, device="cpu"), whole)


@pytest.mark.parametrize(
    ("schedule", "optimizer"), [("cosine", "sgdm"), ("cosine", "schedule-free-sgd"), ("l4", "sgdm"), ("rtho", "sgd")]
)
def test_batch_norms_end_alike_if_the_run_is_stopped(schedule, optimizer, tmp_path):
    spec = tiny(**SMALL_CNN, schedule=schedule, optimizer=optimizer)
    assert_same(stop_and_resume(spec, tmp_path, device="cpu"), run(spec, device="cpu"))


def test_the_same_spec_gives_the_same_bits_and_another_seed_does_not():
    first, again, other = (run(tiny(**SMALL_CNN, seed=seed), device="cpu") for seed in (3, 3, 4))
    assert_same(first, again)
    assert first.trace["loss"][0] != other.trace["loss"][0]


@pytest.mark.parametrize("schedule", ["learned", "mlr-snet"])
def test_learned_lrs_have_the_range_that_suits_pictures_or_text(schedule, schedule_file, texts):
    """From the first loss, or the first perplexity where LRs have to be larger."""
    options = {"schedule": schedule_file} if schedule == "learned" else {}
    given = {"schedule": schedule, "schedule_options": {**options, "scale": 0.01}}
    picture, text = run(tiny(**given), device="cpu"), run(of_text(**given), root=texts, device="cpu")
    vocabulary = text.data["task"]["num_classes"]
    assert picture.epochs[0]["gamma"] == pytest.approx(Gamma()(picture.trace["loss"][0], 2), rel=1e-4)
    by_loss, by_perplexity = (Gamma(statistic=name)(text.trace["loss"][0], vocabulary) for name in STATISTICS)
    assert text.epochs[0]["gamma"] == pytest.approx(by_perplexity, rel=1e-4)
    assert by_perplexity > 1.5 * by_loss


@pytest.mark.parametrize("net", ["lstm", "mlp"])
@pytest.mark.parametrize("extra", [{}, {"bptt": 3}, {"compat": "official"}])
def test_every_network_that_can_be_meta_learned_leaves_its_schedule(net, extra, tmp_path):
    options = {"every": 10, "hidden": 8, "net": net, "name": "mine", **extra}
    spec = tiny(schedule="mlr-snet", schedule_options=options)
    record = stop_and_resume(spec, tmp_path, device="cpu")
    assert "hypergradient" in record.epochs[0]
    schedule = Schedule.load(tmp_path / records.SCHEDULE)
    assert schedule.num_phases == 3
    assert schedule.card.name == "mine"
    assert "digits (classes [0, 1])" in schedule.card.learned_on


# The record


def test_a_record_says_what_was_run_on_what_and_with_which_result(tmp_path):
    record = run(tiny(), tmp_path, device="cpu", labels={"row": "SGD"})
    data = json.loads((tmp_path / "record.json").read_text())
    assert data == record.data
    assert set(data) == {
        *("format", "status", "spec", "labels", "versions", "device", "commit", "metric", "task", "num_parameters"),
        *("steps_per_epoch", "total_steps", "result", "timing", "sessions"),
    }
    assert data["spec"] == tiny().to_dict()
    assert RunSpec.from_file(tmp_path / "record.json") == tiny()
    assert data["labels"] == {"row": "SGD"}
    same = {key: data[key] for key in ("versions", "device", "commit")}
    assert data["sessions"] == [{**same, "from_step": 0}]
    assert data["versions"].keys() >= {"mlrsnet", "torch"}
    assert data["task"] == {"num_classes": 2, "train": 246, "val": 53, "test": 61, "note": ""}
    assert data["num_parameters"] == 64 * 8 + 8 + 8 * 2 + 2
    assert (data["steps_per_epoch"], data["total_steps"]) == (PER_EPOCH, 2 * PER_EPOCH)
    assert data["timing"]["train_seconds"] == pytest.approx(sum(line["seconds"] for line in record.epochs))
    lines = [json.loads(line) for line in (tmp_path / "epochs.jsonl").read_text().splitlines()]
    assert lines == record.epochs
    names = {"epoch", "step", "train_loss", "lr", "seconds", "val_loss", "val_metric", "test_loss", "test_metric"}
    assert all(set(line) == names for line in lines)
    assert json.loads((tmp_path / "trace.json").read_text()) == record.trace
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epochs.jsonl", "record.json", "trace.json"]


def test_a_lines_loss_and_lr_are_those_of_its_steps():
    notes = Notes()
    record = run(tiny(schedule="linear"), device="cpu", watchers=[notes])
    assert len(notes.losses) == 2 * PER_EPOCH
    for line, end in zip(record.epochs, (PER_EPOCH, 2 * PER_EPOCH), strict=True):
        assert line["step"] == end
        assert line["train_loss"] == pytest.approx(np.mean(notes.losses[end - PER_EPOCH : end]), rel=1e-5)
        assert line["lr"] == pytest.approx(notes.lrs[end - 1], rel=1e-5)
        assert line["lr"] == pytest.approx(0.02 * (1 - (end - 1) / (2 * PER_EPOCH)), rel=1e-5)


def test_the_result_is_the_last_epochs_and_the_best_only_stands_beside_it():
    names = ("epoch", "test_metric", "test_loss", "val_loss", "val_metric", "train_loss")
    rows = [(1, 90.0, 0.3, 0.31, 89.0, 0.29), (2, 95.0, 0.2, 0.21, 94.0, 0.19), (3, 92.0, 0.4, 0.41, 91.0, 0.1)]
    epochs = [dict(zip(names, row, strict=True)) for row in rows]
    epochs.append({"epoch": 4, "train_loss": 0.05})  # not evaluated
    beside = {"test_loss": 0.4, "val_loss": 0.41, "val_metric": 91.0, "train_loss": 0.1}
    assert summarise(epochs, "higher") == {"epoch": 3, "last": 92.0, "best": 95.0, "best_epoch": 2, **beside}
    assert summarise(epochs, "lower") == {"epoch": 3, "last": 92.0, "best": 90.0, "best_epoch": 1, **beside}
    assert summarise([], "higher") == summarise([{"epoch": 1, "train_loss": 1.0}], "higher") == {}


@pytest.mark.parametrize(("better", "best"), [("higher", 2), ("lower", 2)])
def test_an_evaluation_without_a_number_is_never_the_best(better, best):
    values = dict.fromkeys(("test_loss", "val_loss", "val_metric", "train_loss"), 0.0)
    epochs = [{"epoch": i + 1, "test_metric": metric, **values} for i, metric in enumerate((math.nan, 5.0, math.nan))]
    assert summarise(epochs, better)["best_epoch"] == best


def test_a_runs_result_is_that_of_its_last_epoch():
    record = run(tiny(**SMALL_CNN, epochs=3), device="cpu")
    metrics = [line["test_metric"] for line in record.epochs]
    assert record.result["last"] == metrics[-1]
    assert record.result["best"] == max(metrics)
    assert record.result["best_epoch"] == 1 + metrics.index(max(metrics))
    assert record.result["test_loss"] == record.epochs[-1]["test_loss"]


def test_fewer_evaluations_change_neither_the_training_nor_the_last_result():
    every = run(tiny(epochs=3), device="cpu")
    second = run(tiny(epochs=3, eval_every=2), device="cpu")
    assert ["test_metric" in line for line in second.epochs] == [False, True, True]
    assert second.trace == every.trace
    assert (
        second.epochs[1:]
        == [line | {"seconds": second.epochs[i]["seconds"]} for i, line in enumerate(every.epochs)][1:]
    )
    assert second.result["last"] == every.result["last"]


@pytest.mark.parametrize("schedule", ["cosine", "val-strategy", "mlr-snet", "l4", "hd", "rtho"])
def test_nothing_in_a_training_depends_on_the_test_data(schedule, monkeypatch):
    spec = tiny(**SMALL_CNN, schedule=schedule, epochs=3)
    honest = run(spec, device="cpu")
    evaluate = Training.evaluate

    def lie(self, *parts):
        return evaluate(self, *parts) | {"test": Score(0.123 * self.step_count, 1.0)}

    monkeypatch.setattr(Training, "evaluate", lie)
    lied = run(spec, device="cpu")
    assert lied.epochs[0]["test_metric"] == 1.0
    assert lied.trace == honest.trace
    for one, other in zip(lied.epochs, honest.epochs, strict=True):
        assert {key: one[key] for key in ("train_loss", "lr", "val_loss")} == {
            key: other[key] for key in ("train_loss", "lr", "val_loss")
        }


def test_evaluation_is_in_evaluation_mode_and_training_goes_on_in_training_mode(monkeypatch):
    modes = []
    alive = Training(tiny(**SMALL_CNN), CPU)
    evaluate = alive.data.evaluate
    monkeypatch.setattr(
        alive.data, "evaluate", lambda model, part: modes.append(model.training) or evaluate(model, part)
    )
    alive.step()
    alive.evaluate("val")
    assert modes == [False]
    assert all(module.training for module in alive.model.modules())


# The LR and the step


@pytest.mark.parametrize(
    ("schedule", "options"),
    [
        ("multistep", {}),
        ("one-cycle", {"warmup": 0.1}),
        ("val-strategy", {}),
        ("learned", {}),
        ("mlr-snet", {"every": 7}),
        ("l4", {}),
        ("hd", {"hyper_lr": 0.01}),
    ],
)
def test_the_traces_lrs_are_those_that_moved_the_weights(schedule, options, schedule_file, monkeypatch):
    """With plain SGD and no weight decay: the length of the step over the length of the gradient."""
    moved, decide = [], Training.decide

    def spy(self, loss):
        parameters = list(self.model.parameters())
        gradient = torch.cat([p.grad.reshape(-1) for p in parameters]).double()
        before = nn.utils.parameters_to_vector(parameters).detach().double()
        decide(self, loss)
        change = nn.utils.parameters_to_vector(parameters).detach().double() - before
        moved.append((-(change @ gradient) / (gradient @ gradient)).item())

    monkeypatch.setattr(Training, "decide", spy)
    options = options | ({"schedule": schedule_file} if schedule == "learned" else {})
    spec = tiny(weight_decay=0, schedule=schedule, schedule_options=options, model_options={"width": 8, "depth": 0})
    record = run(spec, device="cpu")
    assert record.trace["lr"] == pytest.approx(moved, rel=2e-3, abs=1e-6)
    if schedule != "val-strategy":
        assert len({round(lr, 6) for lr in moved}) > 3


@pytest.mark.parametrize(
    ("schedule", "optimizer", "changes"),
    [
        ("hd", "sgdm", {"optimizer_options": {"nesterov": True}}),
        ("hd", "adam", {"optimizer_options": {"beta1": 0.0}}),
        ("rtho", "sgdm", {"clip_norm": 0.2}),
    ],
)
def test_a_method_that_is_an_optimizer_takes_its_form_from_the_spec(schedule, optimizer, changes):
    """With a hyper-LR of 0 it is the spec's optimizer at a fixed LR."""
    spec = tiny(optimizer=optimizer, lr=LRS.get(optimizer, 0.02), weight_decay=0.01, schedule="fixed", **changes)
    plain = run(spec, device="cpu")
    other = run(replace(spec, schedule=schedule, schedule_options={"hyper_lr": 0.0}), device="cpu")
    assert other.trace["lr"] == plain.trace["lr"]
    assert other.trace["loss"] == pytest.approx(plain.trace["loss"], rel=1e-3, abs=1e-5)


def test_rtho_trains_on_every_batch_once_and_validates_on_held_out_ones(monkeypatch):
    alive = Training(tiny(**SMALL_CNN, schedule="rtho"), CPU)
    for _ in range(5):
        alive.step()
    assert (alive.data.train.position, alive.data.val.position) == (5, 4)  # the first step has no slope yet
    tracked = [buffer.item() for name, buffer in alive.model.named_buffers() if name.endswith("num_batches_tracked")]
    assert tracked
    assert set(tracked) == {5}


@pytest.mark.parametrize("schedule", ["l4", "rtho"])
def test_a_form_that_a_method_lacks_is_refused(schedule):
    spec = tiny(schedule=schedule, optimizer="sgdm", optimizer_options={"nesterov": True})
    with pytest.raises(ValueError, match=f"nesterov must be false with schedule '{schedule}', got true"):
        Training(spec, CPU)


@pytest.mark.parametrize("schedule", ["hd", "rtho"])
def test_a_bad_hyper_lr_is_named(schedule):
    with pytest.raises(ValueError, match="hyper_lr must be >= 0, got -1"):
        Training(tiny(schedule=schedule, schedule_options={"hyper_lr": -1.0}), CPU)


def test_a_trace_of_a_long_run_has_at_most_a_thousand_points_evenly_spread(tmp_path):
    notes = Notes()
    spec = tiny(batch_size=2, epochs=9, schedule="cosine")  # an odd number of steps an epoch
    record = run(spec, device="cpu", watchers=[notes])
    steps = record.trace["step"]
    assert len(notes.losses) == record.data["total_steps"] == 123 * 9
    assert steps == list(range(0, 1107, 2))
    assert record.trace["loss"] == pytest.approx([notes.losses[step] for step in steps], rel=1e-5)
    assert record.trace["lr"] == pytest.approx([notes.lrs[step] for step in steps], rel=1e-5)
    assert_same(stop_and_resume(spec, tmp_path, device="cpu"), record)


def test_val_strategy_divides_by_4_exactly_when_validation_stops_improving(monkeypatch):
    found = iter([3.0, 2.0, 2.5, 1.9, 1.9, 1.0])

    def evaluate(self, *parts):
        assert parts == ("val", "test")
        return {"val": Score(next(found), 50.0), "test": Score(9.0, 10.0)}

    monkeypatch.setattr(Training, "evaluate", evaluate)
    record = run(tiny(schedule="val-strategy", epochs=6, batch_size=64, lr=0.064), device="cpu")
    assert [line["lr"] for line in record.epochs] == pytest.approx([0.064, 0.064, 0.064, 0.016, 0.016, 0.004])
    found = iter([3.0, 4.0, 2.0])
    options = {"divisor": 10}
    spec = tiny(schedule="val-strategy", schedule_options=options, epochs=3, batch_size=64, lr=0.5)
    assert [line["lr"] for line in run(spec, device="cpu").epochs] == pytest.approx([0.5, 0.5, 0.05])


def test_val_strategy_is_told_of_every_epoch_however_seldom_others_are():
    record = run(tiny(schedule="val-strategy", epochs=5, eval_every=4, batch_size=64), device="cpu")
    assert all("val_loss" in line for line in record.epochs)
    with pytest.raises(ValueError, match="divisor must be > 1, got 1"):
        Training(tiny(schedule="val-strategy", schedule_options={"divisor": 1}), CPU)


def test_the_test_data_cannot_make_a_training_diverge(monkeypatch):
    evaluate = Training.evaluate
    monkeypatch.setattr(
        Training, "evaluate", lambda self, *parts: evaluate(self, *parts) | {"test": Score(math.inf, 1.0)}
    )
    assert run(tiny(), device="cpu").status == "finished"


def test_gradients_are_clipped_to_the_norm_asked_for_and_no_shorter_ones(monkeypatch):
    def norms(clip_norm):
        alive, found = Training(tiny(clip_norm=clip_norm), CPU), []
        for _ in range(20):
            alive.data.train.prepare()
            alive.gradients()  # no step: the same gradients with and without clipping
            found.append(nn.utils.get_total_norm([p.grad for p in alive.model.parameters()]).item())
        return found

    free = norms(None)
    limit = sorted(free)[10]
    assert norms(limit) == pytest.approx([min(norm, limit) for norm in free], rel=1e-4)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weight_decay_lr_and_options_reach_the_optimizer(optimizer):
    spec = tiny(optimizer=optimizer, weight_decay=0.0123, lr=0.0456)
    (group,) = Training(spec, CPU).optimizer.param_groups
    assert (group["weight_decay"], group["lr"]) == (0.0123, 0.0456)


def test_options_of_the_optimizer_reach_it():
    momentum = tiny(optimizer="sgdm", optimizer_options={"momentum": 0.8, "nesterov": True})
    (group,) = Training(momentum, CPU).optimizer.param_groups
    assert (group["momentum"], group["nesterov"]) == (0.8, True)
    adam = tiny(optimizer="adamw", optimizer_options={"beta1": 0.8, "beta2": 0.9, "eps": 0.1})
    (group,) = Training(adam, CPU).optimizer.param_groups
    assert (group["betas"], group["eps"]) == ((0.8, 0.9), 0.1)


@pytest.mark.parametrize(("precision", "bf16"), [("auto", False), ("fp32", False), ("bf16", True)])
def test_a_cpu_computes_in_full_precision_unless_told_otherwise(precision, bf16):
    alive, types = Training(tiny(precision=precision), CPU), []
    alive.model.register_forward_hook(lambda module, inputs, output: types.append(output.dtype))
    alive.step()
    alive.evaluate("val")
    alive.val_loss()
    assert types == [torch.bfloat16 if bf16 else torch.float32] * 3
    assert all(parameter.dtype == torch.float32 for parameter in alive.model.parameters())


# Schedule-Free


def everything(alive):
    """Copies of all that the next step depends on, and of the modes and momenta of the modules."""
    modules = list(alive.model.modules())
    modes = [(module.training, getattr(module, "momentum", None)) for module in modules]
    state = copy.deepcopy(alive.state_dict())
    return {"modes": modes, **{key: value for key, value in state.items() if key != "calibration"}}


def assert_bitwise(one, other):
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_bitwise(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_bitwise(left, right)
    else:
        assert one == other


@pytest.mark.parametrize("optimizer", ["sgdm", "schedule-free-sgd", "schedule-free-adamw"])
def test_looking_at_the_weights_does_not_change_the_training(optimizer):
    alive = Training(tiny(**SMALL_CNN, optimizer=optimizer, schedule="fixed", lr=0.01), CPU)
    for _ in range(20):
        alive.step()
    before = everything(alive)
    alive.evaluate("val")
    alive.evaluate("test")
    assert_bitwise(everything(alive), before)


def test_an_evaluation_that_fails_leaves_the_training_as_it_was(monkeypatch):
    alive = Training(tiny(**SMALL_CNN, optimizer="schedule-free-sgd", schedule="fixed"), CPU)
    for _ in range(5):
        alive.step()
    before = everything(alive)

    def fail(model, part):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(alive.data, "evaluate", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        alive.evaluate("val")
    after = everything(alive)
    assert_bitwise({**after, "modes": 0}, {**before, "modes": 0})


def test_schedule_free_is_evaluated_at_the_average_with_batch_norms_that_saw_it(monkeypatch):
    spec = tiny(**SMALL_CNN, optimizer="schedule-free-sgd", schedule="fixed")
    alive, seen = Training(spec, CPU), {}
    for _ in range(30):
        alive.step()
    z = {name: alive.optimizer.state[p]["z"].clone() for name, p in alive.model.named_parameters()}
    y = {name: p.detach().clone() for name, p in alive.model.named_parameters()}
    evaluate = alive.data.evaluate

    def spy(model, part):
        seen.update(copy.deepcopy(model.state_dict()))
        return evaluate(model, part)

    monkeypatch.setattr(alive.data, "evaluate", spy)
    alive.evaluate("test")
    for name, weight in y.items():  # y = (1 - beta) z + beta x
        x = (weight - (1 - 0.9) * z[name]) / 0.9
        torch.testing.assert_close(seen[name], x, rtol=1e-4, atol=1e-6)
    assert any((seen[name] - weight).abs().max() > 1e-4 for name, weight in y.items())
    feed, means, variances = alive.data.calibration(), [], []
    for _ in range(averaging.BATCHES):
        feed.prepare()
        first = torch.conv2d(feed.batch()[0], seen["0.weight"], padding=1)
        means.append(first.mean((0, 2, 3)))
        variances.append(first.var((0, 2, 3)))
    torch.testing.assert_close(seen["1.running_mean"], torch.stack(means).mean(0), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(seen["1.running_var"], torch.stack(variances).mean(0), rtol=1e-3, atol=1e-5)


# Stopped, killed, and on a full disk


@pytest.fixture
def fresh_commit(monkeypatch):
    """The commit is asked for anew, before the test and after it."""
    monkeypatch.delenv("MLRSNET_COMMIT", raising=False)
    records.commit.cache_clear()
    yield
    records.commit.cache_clear()


@pytest.mark.usefixtures("fresh_commit")
def test_the_commit_is_the_packages_own_and_says_what_was_changed(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(mlrsnet, "__file__", str(package / "__init__.py"))
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "Begin")
    found = []
    for change in (
        lambda: None,  # a repository that does not know the package: someone's project around an environment
        lambda: (git("add", "package"), git("commit", "--quiet", "--message", "Add")),
        lambda: (package / "new.py").write_text(""),
        lambda: monkeypatch.setenv("MLRSNET_COMMIT", "told"),
    ):
        change()
        records.commit.cache_clear()
        found.append(records.commit())
    assert found[0] is None
    assert len(found[1]) == 12
    assert found[2:] == [f"{found[1]}-changed", "told"]


@pytest.mark.usefixtures("fresh_commit")
def test_a_record_names_every_session_that_trained_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MLRSNET_COMMIT", "first")
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, device="cpu", watchers=[Stop()])
    monkeypatch.setenv("MLRSNET_COMMIT", "second")
    records.commit.cache_clear()
    sessions = run(tiny(), tmp_path, device="cpu").data["sessions"]
    assert [(session["commit"], session["from_step"]) for session in sessions] == [("first", 0), ("second", 64)]


def test_a_run_goes_on_on_the_device_it_was_begun_on_only(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, device="cpu", watchers=[Stop()])
    path = tmp_path / "checkpoint.pt"
    torch.save(torch.load(path) | {"device": "cuda"}, path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"was begun on cuda, got the device cpu: go on with --device cuda, or delete"):
        run(tiny(), tmp_path, device="cpu")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    run(tiny(epochs=1), tmp_path, device="cpu")
    code = f"""
import sys
from pathlib import Path
from mlrsnet.lab.lock import held
with held(Path({str(tmp_path)!r})):
    print("held", flush=True)
    sys.stdin.read()
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "held\n"
    (tmp_path / "record.json").write_text(
        (tmp_path / "record.json").read_text().replace('"status": "finished"', '"status": "running"')
    )
    with pytest.raises(RunInUseError, match="is being trained by another process: wait for it, or use another folder"):
        run(tiny(epochs=1), tmp_path, device="cpu")
    child.kill()  # no farewell: the lock goes with the process
    child.communicate()
    assert run(tiny(epochs=1), tmp_path, device="cpu").status == "finished"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_is_written_down_and_the_run_goes_on(number, tmp_path):
    notes, again = Notes(), Notes()
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, device="cpu", watchers=[Stop(number), notes], labels={"row": "a"})
    stopped = records.read(tmp_path)
    assert stopped.status == "interrupted"
    assert notes.heard == [("begin", 0, 122), ("epoch", 1), ("end", "interrupted")]
    assert [line["epoch"] for line in stopped.epochs] == [1]
    assert stopped.result["epoch"] == 1
    assert checkpoint_step(tmp_path) == 64  # the step after the signal, in mid-epoch
    record = run(tiny(), tmp_path, device="cpu", watchers=[again])
    assert again.heard == [("begin", 64, 122), ("epoch", 2), ("end", "finished")]
    assert_same(record, run(tiny(), device="cpu", labels={"row": "a"}))
    assert record.data["timing"]["started"] == stopped.data["timing"]["started"]
    assert record.data["timing"]["seconds"] > stopped.data["timing"]["seconds"]
    assert not (tmp_path / records.CHECKPOINT).exists()


def test_a_second_ctrl_c_stops_at_once_and_the_last_checkpoint_holds(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, device="cpu", watchers=[Stop(times=2)], checkpoint_seconds=0)
    assert records.read(tmp_path).status == "interrupted"
    assert checkpoint_step(tmp_path) == PER_EPOCH  # that of the first epoch's end: step 64 was not waited for
    assert_same(run(tiny(), tmp_path, device="cpu"), run(tiny(), device="cpu"))


def test_a_second_ctrl_c_before_any_checkpoint_begins_anew(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, device="cpu", watchers=[Stop(times=2)])
    assert not (tmp_path / records.CHECKPOINT).exists()
    assert_same(run(tiny(), tmp_path, device="cpu"), run(tiny(), device="cpu"))


class StopAtEnd(Stop):
    """Presses Ctrl-C while an epoch is evaluated."""

    def __init__(self, epoch):
        super().__init__()
        self.at = epoch

    def epoch(self, line, losses, lrs):
        if line["epoch"] == self.at:
            super().steps(line["step"])

    def steps(self, step):
        pass


def test_ctrl_c_between_two_epochs_is_heard(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, device="cpu", watchers=[StopAtEnd(1)])
    assert checkpoint_step(tmp_path) == PER_EPOCH + 1
    assert_same(run(tiny(), tmp_path, device="cpu"), run(tiny(), device="cpu"))


def test_ctrl_c_in_the_last_evaluation_is_heard_and_the_run_is_finished(tmp_path):
    """Else the next of many runs would begin, and Ctrl-C be pressed in vain."""
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, device="cpu", watchers=[StopAtEnd(2)])
    assert_same(records.read(tmp_path), run(tiny(), device="cpu"))


def test_ctrl_c_works_as_always_after_a_run_and_a_run_works_in_a_thread():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    found = []
    run(tiny(epochs=1), device="cpu")
    thread = threading.Thread(target=lambda: found.append(run(tiny(epochs=1), device="cpu")))
    thread.start()
    thread.join()
    assert found[0].status == "finished"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


KILLER = """
import os, random, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from mlrsnet.lab.spec import RunSpec
from mlrsnet.lab.trainer import run
from mlrsnet.lab.training import Training

spec, folder, chance, kills = RunSpec.from_file(Path(sys.argv[1])), Path(sys.argv[2]), random.Random(sys.argv[3]), 0
Training(spec, torch.device("cpu"))  # data and packages are read once for all of the processes below

def checkpoint():
    try:
        return (folder / "checkpoint.pt").stat().st_mtime_ns
    except FileNotFoundError:
        return None

while True:
    child = os.fork()
    if not child:
        run(spec, folder, device="cpu", checkpoint_seconds=0)
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
    whole = run(spec, tmp_path / "whole", device="cpu")
    assert_same(records.read(tmp_path / "run"), records.read(tmp_path / "whole"))
    assert (tmp_path / "run/trace.json").read_bytes() == (tmp_path / "whole/trace.json").read_bytes()
    assert (tmp_path / "run/schedule.safetensors").read_bytes() == (
        tmp_path / "whole/schedule.safetensors"
    ).read_bytes()
    assert whole.data["total_steps"] == 5 * 123


def test_a_finished_run_is_returned_without_training_again(tmp_path, monkeypatch):
    record, notes = run(tiny(), tmp_path, device="cpu"), Notes()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    no_training(monkeypatch)
    assert_same(run(tiny(), tmp_path, device="cpu", watchers=[notes]), record)
    assert notes.heard == [("begin", 122, 122), ("end", "finished")]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_run_of_before_a_setting_was_there_is_not_trained_again(tmp_path, monkeypatch):
    run(tiny(), tmp_path, device="cpu")
    data = json.loads((tmp_path / "record.json").read_text())
    del data["spec"]["rays"]
    (tmp_path / "record.json").write_text(json.dumps(data))
    no_training(monkeypatch)
    assert run(tiny(), tmp_path, device="cpu").status == "finished"


def test_a_folder_with_another_run_is_refused_naming_what_is_different(tmp_path):
    run(tiny(), tmp_path, device="cpu")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"holds a run with another spec \(different: lr, seed\): use another folder"):
        run(tiny(lr=0.3, seed=5), tmp_path, device="cpu")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("damage", ["bytes", "cut", "empty", "other", "other-shapes"])
def test_a_damaged_checkpoint_is_named_and_without_it_the_run_begins_anew(damage, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tmp_path, device="cpu", watchers=[Stop()])
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
    with pytest.raises(ValueError, match=r"is not a checkpoint of this run \(\w+\): delete it to begin anew") as found:
        run(tiny(), tmp_path, device="cpu")
    assert str(path) in str(found.value)
    assert "\n" not in str(found.value)
    assert records.read(tmp_path).status == "interrupted"
    path.unlink()
    assert_same(run(tiny(), tmp_path, device="cpu"), run(tiny(), device="cpu"))


def test_a_checkpoint_of_another_run_is_not_taken_for_this_ones(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny(seed=5), tmp_path, device="cpu", watchers=[Stop()])
    (tmp_path / records.RECORD).unlink()
    with pytest.raises(ValueError, match="is not a checkpoint of this run"):
        run(tiny(seed=6), tmp_path, device="cpu")


def test_a_folder_that_cannot_be_written_is_told_before_the_training(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    steps = []
    monkeypatch.setattr(Training, "step", lambda self: steps.append(self))
    with pytest.raises(OSError, match="file"):
        run(tiny(), tmp_path / "file" / "run", device="cpu")
    assert not steps


@pytest.mark.parametrize("stays_full", [False, True])
def test_a_full_disk_costs_no_file_that_was_written_and_the_run_goes_on(stays_full, tmp_path, monkeypatch):
    write, checkpoints, notes = records.write_atomically, [], Notes()

    def full(path, content):
        checkpoints.extend([path] * (path.name == records.CHECKPOINT))
        if len(checkpoints) > 1 and (stays_full or path.name == records.CHECKPOINT):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, content)

    with monkeypatch.context() as patch:
        for module in (records, trainer):
            patch.setattr(module, "write_atomically", full)
        with pytest.raises(OSError, match="No space left"):
            run(tiny(epochs=4), tmp_path, device="cpu", checkpoint_seconds=0, watchers=[notes])
    assert notes.heard[-1] == ("end", "failed")  # a progress bar is taken off the screen
    left = records.read(tmp_path)
    assert left.status == ("running" if stays_full else "failed")
    assert [line["epoch"] for line in left.epochs] == [1]
    assert checkpoint_step(tmp_path) == PER_EPOCH
    assert_same(run(tiny(epochs=4), tmp_path, device="cpu"), run(tiny(epochs=4), device="cpu"))


def test_an_error_in_a_watcher_is_written_down_and_the_run_goes_on(tmp_path):
    class Broken(Watcher):
        def epoch(self, line, losses, lrs):
            raise RuntimeError("no network")

    with pytest.raises(RuntimeError, match="no network"):
        run(tiny(), tmp_path, device="cpu", watchers=[Broken()])
    failed = records.read(tmp_path)
    assert (failed.status, failed.data["error"]) == ("failed", "RuntimeError: no network")
    assert_same(run(tiny(), tmp_path, device="cpu"), run(tiny(), device="cpu"))


# Divergence


def refuse(name):
    raise AssertionError(f"{name} in JSON")


@pytest.mark.parametrize(
    "changes",
    [
        {"lr": 1e6, "weight_decay": 1.0},
        {"lr": 1e6, "weight_decay": 1.0, "optimizer": "schedule-free-sgd", **SMALL_CNN},
        {"schedule": "mlr-snet", "schedule_options": {"scale": 1e6}, "weight_decay": 1.0},
        {"lr": 1e6, "weight_decay": 1.0, "epochs": 1},
        {"lr": 1e6, "weight_decay": 1.0, "schedule": "hd"},
        {"lr": 1e6, "weight_decay": 1.0, "schedule": "rtho"},
    ],
)
@pytest.mark.filterwarnings("ignore:.* was not finite. \\w+ has:UserWarning")
@pytest.mark.filterwarnings("ignore:a loss was not finite:UserWarning")
@pytest.mark.filterwarnings("ignore:a meta-update was skipped:UserWarning")
def test_a_run_that_diverges_ends_so_in_plain_json_and_is_not_tried_again(changes, tmp_path, monkeypatch):
    record = run(tiny(**{"epochs": 3} | changes), tmp_path, device="cpu")
    assert record.status == "diverged"
    assert len(record.epochs) == 1
    for name in ("record.json", "trace.json"):
        json.loads((tmp_path / name).read_text(), parse_constant=refuse)
    (line,) = (json.loads(text, parse_constant=refuse) for text in (tmp_path / "epochs.jsonl").read_text().splitlines())
    assert line["train_loss"] is None
    assert records.read(tmp_path).result["test_loss"] is None
    assert not (tmp_path / records.CHECKPOINT).exists()
    no_training(monkeypatch)
    assert run(tiny(**{"epochs": 3} | changes), tmp_path, device="cpu").status == "diverged"


def test_a_text_that_diverges_has_no_perplexity_and_plain_json(texts, tmp_path):
    record = run(of_text(lr=1e6, weight_decay=1.0), tmp_path, root=texts, device="cpu")
    assert record.status == "diverged"
    assert json.loads((tmp_path / "record.json").read_text(), parse_constant=refuse)["result"]["last"] is None


def test_a_perplexity_too_large_for_a_number_is_infinite_and_no_error():
    assert trainer._perplexity(1e5) == math.inf
    assert trainer._perplexity(math.log(50)) == pytest.approx(50)


# What is around a run


def test_the_callers_random_numbers_and_settings_are_left_alone(monkeypatch):
    for set_up in (lambda: None, lambda: torch.use_deterministic_algorithms(True, warn_only=True)):
        set_up()
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
        before = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
        flags = (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
        try:
            run(tiny(epochs=1, deterministic=True), device="cpu")
            after = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
            assert torch.equal(before[0], after[0])
            assert before[1:] == after[1:]
            assert torch.backends.cudnn.benchmark is True
            found = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
            assert found == flags
        finally:
            torch.use_deterministic_algorithms(False)


def test_the_callers_random_numbers_do_not_choose_the_training(texts):
    torch.manual_seed(1)
    first = run(of_text(), root=texts, device="cpu")  # with dropout
    torch.manual_seed(2)
    assert_same(run(of_text(), root=texts, device="cpu"), first)


@pytest.mark.parametrize("device", ["tpu", "meta", "cuda:99", ""])
def test_a_device_that_is_not_there_is_refused_with_the_words_for_those_that_are(device):
    with pytest.raises(ValueError, match="cpu"):
        resolve(device)


def test_auto_is_a_device_that_is_there():
    assert resolve("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve("cpu") == CPU


BLOCKED = """
import importlib, sys
for name in ("rich", "matplotlib", "tensorboard", "sklearn", "torchvision", "PIL", "schedulefree", "prodigyopt"):
    sys.modules[name] = None
for name in ("trainer", "tasks", "models", "feeds", "deciders", "reproduce"):
    importlib.import_module(f"mlrsnet.lab.{name}")
from mlrsnet.lab.spec import RunSpec
from mlrsnet.lab.trainer import run
import numpy as np
random = np.random.default_rng(0)
x, y = random.integers(0, 256, (40, 4, 4, 1), dtype=np.uint8), np.arange(40) % 2
np.savez(sys.argv[1], x_train=x, y_train=y, x_test=x, y_test=y)
spec = RunSpec(task=sys.argv[1], task_options={"val_size": 8}, model="mlp", batch_size=4, epochs=1)
print(run(spec, device="cpu").status)
try:
    run(RunSpec(optimizer="prodigy", task=sys.argv[1], task_options={"val_size": 8}, model="mlp", batch_size=4), device="cpu")
except ImportError as error:
    print(error)
"""


def test_a_machine_without_terminal_and_picture_packages_can_train(tmp_path):
    words = [sys.executable, "-c", BLOCKED, str(tmp_path / "own.npz")]
    found = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert found.stdout.splitlines() == [
        "finished",
        "this optimizer needs the package prodigyopt, which is not installed: pip install prodigyopt",
    ], found.stderr


def test_a_model_for_text_is_refused_for_pictures_and_the_other_way_round(texts):
    with pytest.raises(ValueError, match="which reads text"):
        run(RunSpec(model="lstm"), device="cpu")
    with pytest.raises(ValueError, match="which reads pictures"):
        run(RunSpec(task="ptb", model="mlp"), root=texts, device="cpu")


# A decider of one's own


class BoldDriver(Decider):
    """Up a little where the loss fell, down where it rose."""

    def __init__(self, setting, *, up=1.02, down=0.7):
        super().__init__(setting)
        self.up, self.down, self.last = up, down, math.inf

    def step(self, loss):
        value = float(loss)
        self.set_lr(float(self.lr()) * (self.up if value < self.last else self.down))
        self.last = value
        self.optimizer.step()

    def scalars(self):
        return {"last": self.last}

    def state_dict(self):
        return {"last": self.last}

    def load_state_dict(self, state):
        self.last = state["last"]


def test_a_method_of_ones_own_is_one_small_class(tmp_path, monkeypatch):
    for table in (deciders.METHODS, deciders.SCHEDULES):
        monkeypatch.setitem(table, "bold-driver", BoldDriver)
    spec = tiny(schedule="bold-driver", schedule_options={"down": 0.5}, lr=0.01)
    whole = run(spec, device="cpu")
    losses, lr, expected = [math.inf, *whole.trace["loss"]], 0.01, []
    for before, loss in pairwise(losses):
        lr *= 1.02 if loss < before else 0.5
        expected.append(lr)
    assert whole.trace["lr"] == pytest.approx(expected, rel=1e-4)
    assert whole.epochs[-1]["last"] == whole.trace["loss"][-1]
    assert_same(stop_and_resume(spec, tmp_path, device="cpu"), whole)
    assert RunSpec.from_json(spec.to_json()) == spec
    with pytest.raises(ValueError, match="no option 'sideways' for 'bold-driver': its options are up, down"):
        tiny(schedule="bold-driver", schedule_options={"sideways": 1})


# TensorBoard


def curves(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_shows_loss_lr_gamma_hypergradient_and_accuracy(tmp_path):
    from mlrsnet.lab.board import Board

    spec = tiny(schedule="mlr-snet", schedule_options={"every": 10, "hidden": 8})
    record = run(spec, device="cpu", watchers=[Board(tmp_path)])
    found = curves(tmp_path)
    for name in ("loss", "lr"):
        steps, values = zip(*found[f"step/{name}"], strict=True)
        assert list(steps) == [step + 1 for step in record.trace["step"]]  # an epoch's last is its line's
        assert values == pytest.approx(record.trace[name], rel=1e-5)
    for name in ("gamma", "hypergradient", "test_metric", "val_metric", "train_loss", "val_loss", "test_loss"):
        expected = [(line["step"], pytest.approx(line[name], rel=1e-5)) for line in record.epochs]
        assert found[f"epoch/{name}"] == expected


class BreakAtEnd(Watcher):
    """Fails after an epoch was drawn and before it is kept."""

    def epoch(self, line, losses, lrs):
        if line["epoch"] == 2:
            raise RuntimeError("no network")


@pytest.mark.parametrize("stop", [Stop(), Stop(times=2), StopAtEnd(2), BreakAtEnd()])
def test_the_curves_of_a_run_that_was_stopped_are_those_of_one_that_was_not(stop, tmp_path):
    from mlrsnet.lab.board import Board

    spec = tiny(epochs=4)
    run(spec, device="cpu", watchers=[Board(tmp_path / "whole")])
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        run(spec, tmp_path / "run", device="cpu", watchers=[Board(tmp_path / "board"), stop], checkpoint_seconds=0)
    run(spec, tmp_path / "run", device="cpu", watchers=[Board(tmp_path / "board")])
    assert curves(tmp_path / "board") == curves(tmp_path / "whole")


def test_a_finished_run_leaves_tensorboard_alone(tmp_path):
    from mlrsnet.lab.board import Board

    run(tiny(epochs=1), tmp_path / "run", device="cpu")
    run(tiny(epochs=1), tmp_path / "run", device="cpu", watchers=[Board(tmp_path / "board")])
    assert not (tmp_path / "board").exists()


def test_without_tensorboard_one_line_says_what_to_install(tmp_path, monkeypatch):
    from mlrsnet.lab.board import Board

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        Board(tmp_path)


# Records on disk


def test_a_run_can_be_read_while_it_is_written_and_a_cut_last_line_is_left_out(tmp_path):
    run(tiny(), tmp_path, device="cpu")
    text = (tmp_path / "epochs.jsonl").read_text()
    (tmp_path / "epochs.jsonl").write_text(text[:-20])
    assert [line["epoch"] for line in records.read(tmp_path).epochs] == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no run"),
        ("{", "cannot be read"),
        ("[]", "no run record"),
        ('{"format": 2, "status": "", "spec": {}}', "upgrade"),
    ],
)
def test_a_folder_that_is_no_run_is_told_in_one_line(content, message, tmp_path):
    if content is not None:
        (tmp_path / "record.json").write_text(content)
    with pytest.raises(ValueError, match=message) as found:
        records.read(tmp_path)
    assert str(tmp_path) in str(found.value)


def test_runs_are_found_below_a_folder_in_the_order_of_their_names(tmp_path):
    for name in ("b/2", "a", "b/1"):
        records.write(Record({"format": 1, "status": "finished", "spec": {}}, folder=tmp_path / name))
    assert [path.relative_to(tmp_path).as_posix() for path in records.find(tmp_path)] == ["a", "b/1", "b/2"]
    with pytest.raises(ValueError, match="there is no folder"):
        records.find(tmp_path / "c")
