"""The LRs of a whole training as hyperparameters (Eq. 6): exact gradients, passes that help, runs that resume."""

import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from runs import CPU, SMALL_CNN, assert_same, of_text, stop_and_resume, tiny

from mlrsnet_lab.loop import run
from mlrsnet_lab.recipes import direct as direct_recipe
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.stepper import Stepper

HERE = Settings(device="cpu")
PIXELS = {"task_options": {"classes": [0, 1, 2]}, "batch_size": 64, "epochs": 4}
WITH_DROPOUT = {"model": "wrn-28-10", "model_options": {"depth": 10, "width": 1, "dropout": 0.2}}
SHIFT = 1e-8
"""Of an LR; a larger one moves batch norms of single pictures over kinks."""


def direct(passes=2, every=None, meta_lr=0.3, **changes):
    options = {"passes": passes, "every": every, "meta_lr": meta_lr}
    return tiny(schedule="direct", schedule_options=options, **(PIXELS | changes))


def in_float64(spec):
    stepper = Stepper(spec, CPU)
    stepper.model.double()
    stepper.model.register_forward_pre_hook(lambda model, inputs: (inputs[0].double(),))
    return stepper


def trained(spec, log_lrs=None):
    """At the end of the first pass, under these LRs."""
    stepper = in_float64(spec)
    if log_lrs is not None:
        stepper.method.log_lrs.copy_(log_lrs)
    for _ in range(stepper.method.steps):
        stepper.step()
    return stepper


def held_out_loss(stepper):
    count = stepper.data.val.steps
    return sum(float(stepper.val_gradients()[0]) for _ in range(count)) / count


@pytest.mark.parametrize("model", [{}, SMALL_CNN, WITH_DROPOUT])
def test_the_hypergradient_is_that_of_the_whole_training(model):
    """Against differences of trainings, with weight decay, batch norms, dropout and unequal LRs, the last of fewer steps."""
    spec = direct(every=3, weight_decay=0.05, lr=0.1, **model)
    first = in_float64(spec).method.log_lrs
    around = first + torch.linspace(-0.5, 0.5, len(first), dtype=torch.float64)
    stepper = trained(spec, around)
    steps, segments = stepper.method.steps, len(first)
    assert steps % 3
    assert segments == math.ceil(steps / 3) >= 3
    exact, alphas = stepper.method.hypergradient(), around.exp()
    for segment in range(segments):
        losses = []
        for shift in (SHIFT, -SHIFT):
            moved = alphas.clone()
            moved[segment] += shift
            end = trained(spec, moved.log())
            losses.append(held_out_loss(end))
        assert float(exact[segment]) == pytest.approx((losses[0] - losses[1]) / (2 * SHIFT), rel=1e-5, abs=1e-6)
    assert float(exact.abs().max()) > 1e-3


def test_every_pass_is_the_same_training_under_other_lrs():
    """With LRs that hardly move, the passes are one training, and the one that a fixed LR gives."""
    spec = direct(meta_lr=1e-300, model="small_cnn", model_options={"width": 2})
    whole = run(spec, settings=HERE)
    half = len(whole.trace["loss"]) // 2
    assert whole.trace["loss"][:half] == whole.trace["loss"][half:]
    assert [line["pass"] for line in whole.epochs] == [1, 1, 2, 2]
    fixed = run(tiny(schedule="fixed", **(PIXELS | SMALL_CNN | {"epochs": 2})), settings=HERE)
    assert whole.trace["loss"][half:] == fixed.trace["loss"]
    assert whole.epochs[-1]["test_loss"] == fixed.epochs[-1]["test_loss"]


def test_steps_that_are_taken_again_are_the_same_bits():
    stepper, seen = Stepper(direct(every=4, **SMALL_CNN), CPU), []
    for _ in range(stepper.method.steps):
        seen.append(stepper.moment()["model"])
        stepper.step()
    again = [
        moment["model"] for segment in range(len(stepper.method.kept)) for moment in stepper.method._again(segment)
    ]
    for one, other in zip(seen, again, strict=True):
        assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_passes_lower_the_held_out_loss_from_an_lr_that_is_too_small():
    whole = run(direct(passes=5, epochs=10, lr=0.02, meta_lr=0.5, weight_decay=0.0), settings=HERE)
    at_ends = [line["val_loss"] for line in whole.epochs[1::2]]
    assert at_ends == sorted(at_ends, reverse=True)
    assert at_ends[-1] < 0.7 * at_ends[0]
    assert min(whole.trace["lr"]) > 0
    assert len({line["hypergradient"] for line in whole.epochs[2:]}) == 4


def test_a_stopped_run_ends_alike(tmp_path):
    spec = direct(passes=3, epochs=3, batch_size=16, every=7, **SMALL_CNN)
    assert_same(stop_and_resume(spec, tmp_path, settings=HERE), run(spec, settings=HERE))
    assert Stepper(spec, CPU).method.steps < 64  # so that it was stopped in a later pass


def test_a_training_goes_on_alike_from_any_place_in_a_pass():
    """In its middle, where an LR begins, at its end before anything is learned, and in the next one; with dropout."""
    spec, found = direct(every=4, epochs=2, **WITH_DROPOUT), []
    steps = Stepper(spec, CPU).method.steps
    for stop in (None, 3, 4, steps, steps + 1):
        stepper = Stepper(spec, CPU)
        while stepper.step_count < stepper.total_steps:
            if stepper.step_count == stop:
                state, stepper = deepcopy(stepper.state_dict()), Stepper(spec, CPU)
                stepper.load_state_dict(state)
            stepper.step()
        found.append((stepper.trace.read(), stepper.model.state_dict()))
    for trace, weights in found[1:]:
        assert trace == found[0][0]
        assert all(torch.equal(tensor, found[0][1][name]) for name, tensor in weights.items())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"passes": 3}, ValueError, "passes must divide the run's epochs, 4, got 3: pass epochs=6, or another"),
        ({"passes": 1}, ValueError, "passes must be a whole number >= 2, got 1: the LRs are learned between passes"),
        ({"every": 0}, ValueError, "every must be a whole number >= 1, got 0"),
        ({"meta_lr": 0.0}, ValueError, "meta_lr must be > 0, got 0.0"),
        ({"clip_norm": 1.0}, ValueError, "clip_norm must be null with schedule 'direct', got 1.0: leave it out"),
        (
            {"optimizer": "sgdm"},
            TypeError,
            "optimizer must be one that schedule 'direct' has a form for, got SGD with momentum 0.9: pass optimizer sgd",
        ),
        (
            {"optimizer": "adam"},
            TypeError,
            "optimizer must be one that schedule 'direct' has a form for, got Adam: pass optimizer sgd",
        ),
    ],
)
def test_a_setting_that_has_no_equation_is_refused_and_told_what_to_do(changes, error, message):
    with pytest.raises(error, match=message):
        run(direct(**changes), settings=HERE)


def test_running_text_is_refused_because_memory_is_carried_between_batches(texts):
    with pytest.raises(
        ValueError, match=r"task must have batches that do not depend on each other .* got running text"
    ):
        run(of_text(schedule="direct", schedule_options={"passes": 2}), settings=Settings(device="cpu", root=texts))


def test_lrs_are_kept_after_a_pass_whose_gradient_is_not_finite(monkeypatch):
    stepper = trained(direct())
    before = stepper.method.log_lrs.clone()
    monkeypatch.setattr(stepper.method, "hypergradient", lambda: torch.full_like(before, math.inf))
    with pytest.warns(UserWarning, match="the hypergradient of a pass was not finite: its LRs are kept"):
        stepper.method.learn()
    assert torch.equal(stepper.method.log_lrs, before)


@pytest.mark.parametrize("scale", direct_recipe.SETTINGS)
def test_the_rows_of_the_recipe_are_one_training_and_a_pass_is_as_long(scale):
    cells = {cell.row: cell.spec for cell in direct_recipe.cells(scale)}
    base, eq6 = cells["Fixed"], cells.pop(direct_recipe.DIRECT)
    assert {spec.epochs for spec in cells.values()} == {base.epochs}
    assert eq6.epochs == base.epochs * eq6.schedule_options["passes"]
    high = cells.pop(direct_recipe.HIGH_COSINE)
    assert replace(high, lr=base.lr) == cells["Cosine, warm-up"]
    for spec in (eq6, *cells.values()):
        assert replace(spec, schedule="fixed", schedule_options={}, epochs=base.epochs) == base
    assert (base.optimizer, base.clip_norm, base.precision) == ("sgd", None, "fp32")
