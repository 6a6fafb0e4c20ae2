"""Steps of a training: the LR that moves the weights, gradients, options that reach the optimizer, precision."""

import math
from dataclasses import replace

import pytest
import torch
from runs import CPU, LRS, SMALL_CNN, Notes, assert_same, stop_and_resume, tiny
from torch import nn

from mlrsnet_lab.feeds import Score
from mlrsnet_lab.loop import run
from mlrsnet_lab.optimizers import OPTIMIZERS
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.stepper import Stepper


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
    moved, decide = [], Stepper.decide

    def spy(self, loss):
        parameters = list(self.model.parameters())
        gradient = torch.cat([p.grad.reshape(-1) for p in parameters]).double()
        before = nn.utils.parameters_to_vector(parameters).detach().double()
        decide(self, loss)
        change = nn.utils.parameters_to_vector(parameters).detach().double() - before
        moved.append((-(change @ gradient) / (gradient @ gradient)).item())

    monkeypatch.setattr(Stepper, "decide", spy)
    options = options | ({"schedule": schedule_file} if schedule == "learned" else {})
    spec = tiny(weight_decay=0, schedule=schedule, schedule_options=options, model_options={"width": 8, "depth": 0})
    record = run(spec, settings=Settings(device="cpu"))
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
    plain = run(spec, settings=Settings(device="cpu"))
    other = run(replace(spec, schedule=schedule, schedule_options={"hyper_lr": 0.0}), settings=Settings(device="cpu"))
    assert other.trace["lr"] == plain.trace["lr"]
    assert other.trace["loss"] == pytest.approx(plain.trace["loss"], rel=1e-3, abs=1e-5)


def test_rtho_trains_on_every_batch_once_and_validates_on_held_out_ones(monkeypatch):
    alive = Stepper(tiny(**SMALL_CNN, schedule="rtho"), CPU)
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
        Stepper(spec, CPU)


@pytest.mark.parametrize("schedule", ["hd", "rtho"])
def test_a_bad_hyper_lr_is_named(schedule):
    with pytest.raises(ValueError, match="hyper_lr must be >= 0, got -1"):
        Stepper(tiny(schedule=schedule, schedule_options={"hyper_lr": -1.0}), CPU)


def test_a_trace_of_a_long_run_has_at_most_a_thousand_points_evenly_spread(tmp_path):
    notes = Notes()
    spec = tiny(batch_size=2, epochs=9, schedule="cosine")  # an odd number of steps an epoch
    record = run(spec, settings=Settings(device="cpu"), watchers=[notes])
    steps = record.trace["step"]
    assert len(notes.losses) == record.data["total_steps"] == 123 * 9
    assert steps == list(range(0, 1107, 2))
    assert record.trace["loss"] == pytest.approx([notes.losses[step] for step in steps], rel=1e-5)
    assert record.trace["lr"] == pytest.approx([notes.lrs[step] for step in steps], rel=1e-5)
    assert_same(stop_and_resume(spec, tmp_path, settings=Settings(device="cpu")), record)


def test_val_strategy_divides_by_4_exactly_when_validation_stops_improving(monkeypatch):
    found = iter([3.0, 2.0, 2.5, 1.9, 1.9, 1.0])

    def evaluate(self, *parts):
        assert parts == ("val", "test")
        return {"val": Score(next(found), 50.0), "test": Score(9.0, 10.0)}

    monkeypatch.setattr(Stepper, "evaluate", evaluate)
    record = run(tiny(schedule="val-strategy", epochs=6, batch_size=64, lr=0.064), settings=Settings(device="cpu"))
    assert [line["lr"] for line in record.epochs] == pytest.approx([0.064, 0.064, 0.064, 0.016, 0.016, 0.004])
    found = iter([3.0, 4.0, 2.0])
    options = {"divisor": 10}
    spec = tiny(schedule="val-strategy", schedule_options=options, epochs=3, batch_size=64, lr=0.5)
    assert [line["lr"] for line in run(spec, settings=Settings(device="cpu")).epochs] == pytest.approx([0.5, 0.5, 0.05])


def test_val_strategy_is_told_of_every_epoch_however_seldom_others_are():
    record = run(tiny(schedule="val-strategy", epochs=5, eval_every=4, batch_size=64), settings=Settings(device="cpu"))
    assert all("val_loss" in line for line in record.epochs)
    with pytest.raises(ValueError, match="divisor must be > 1, got 1"):
        Stepper(tiny(schedule="val-strategy", schedule_options={"divisor": 1}), CPU)


def test_the_test_data_cannot_make_a_training_diverge(monkeypatch):
    evaluate = Stepper.evaluate
    monkeypatch.setattr(
        Stepper, "evaluate", lambda self, *parts: evaluate(self, *parts) | {"test": Score(math.inf, 1.0)}
    )
    assert run(tiny(), settings=Settings(device="cpu")).status == "finished"


def test_gradients_are_clipped_to_the_norm_asked_for_and_no_shorter_ones(monkeypatch):
    def norms(clip_norm):
        alive, found = Stepper(tiny(clip_norm=clip_norm), CPU), []
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
    (group,) = Stepper(spec, CPU).optimizer.param_groups
    assert (group["weight_decay"], group["lr"]) == (0.0123, 0.0456)


def test_options_of_the_optimizer_reach_it():
    momentum = tiny(optimizer="sgdm", optimizer_options={"momentum": 0.8, "nesterov": True})
    (group,) = Stepper(momentum, CPU).optimizer.param_groups
    assert (group["momentum"], group["nesterov"]) == (0.8, True)
    adam = tiny(optimizer="adamw", optimizer_options={"beta1": 0.8, "beta2": 0.9, "eps": 0.1})
    (group,) = Stepper(adam, CPU).optimizer.param_groups
    assert (group["betas"], group["eps"]) == ((0.8, 0.9), 0.1)


@pytest.mark.parametrize(("precision", "bf16"), [("auto", False), ("fp32", False), ("bf16", True)])
def test_a_cpu_computes_in_full_precision_unless_told_otherwise(precision, bf16):
    alive, types = Stepper(tiny(precision=precision), CPU), []
    alive.model.register_forward_hook(lambda module, inputs, output: types.append(output.dtype))
    alive.step()
    alive.evaluate("val")
    alive.val_gradients()
    assert types == [torch.bfloat16 if bf16 else torch.float32] * 3
    assert all(parameter.dtype == torch.float32 for parameter in alive.model.parameters())
