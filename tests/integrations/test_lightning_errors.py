"""What the Lightning callbacks of LearnedLR refuse, and what they warn about."""

import subprocess
import sys

import pytest
import torch
from lightning_fits import (
    Batches,
    Configured,
    Manual,
    Module,
    TwoOptimizers,
    WithCosine,
    feed_callback,
    fit,
    own_callback,
)

from mlrsnet.integrations.lightning import LearnedLRCallback, LossFeed


@pytest.mark.parametrize(
    ("new", "callbacks", "message"),
    [
        (WithCosine, ["own"], "no LR scheduler with LearnedLRCallback, got CosineAnnealingLR"),
        (Configured, ["own"], r"no LR scheduler with LearnedLRCallback, got LearnedLR.*LossFeed\(\) instead"),
        (WithCosine, ["feed"], "one LearnedLR as its scheduler, got CosineAnnealingLR"),
        (Module, ["feed"], "one LearnedLR as its scheduler, got none"),
        (TwoOptimizers, ["own"], "one optimizer for LearnedLRCallback, got 2: for several, pass LossFeed"),
        (TwoOptimizers, ["feed"], "a LearnedLR for each of 2 optimizers, got none"),
        (lambda: Module(lambda net: torch.optim.LBFGS(net.parameters())), ["own"], "got LBFGS"),
        (Module, ["own", "feed"], "only one callback can set the LR, got LearnedLRCallback and LossFeed"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_step(paper, new, callbacks, message):
    module = new(paper) if new is Configured else new()
    kinds = {"own": own_callback, "feed": feed_callback}
    with pytest.raises(ValueError, match=message):
        fit(module, [kinds[name](paper) for name in callbacks])
    assert not module.used


class NoOptimizer(Module):
    def configure_optimizers(self):
        return None


def test_a_module_without_an_optimizer_is_refused(paper):
    with (
        pytest.warns(UserWarning, match="no optimizer"),
        pytest.raises(ValueError, match="one optimizer for LearnedLRCallback, got 0"),
    ):
        fit(NoOptimizer(), [own_callback(paper)])


def test_a_loss_that_never_arrives_is_told(paper):
    module = Manual(raw=True)
    with pytest.warns(UserWarning, match=r"no loss reached LearnedLR.*manual_backward\(loss\)"):
        fit(module, [own_callback(paper)], max_steps=1)
    assert module.used == [[0.1]]


def test_a_loss_that_is_not_finite_can_stop_the_training(paper):
    module, callback = Module(), LearnedLRCallback(paper, num_classes=5, on_nonfinite="raise")
    with pytest.raises(FloatingPointError, match="loss must be finite"):
        fit(module, [callback], Batches(nan_at=3))
    assert len(module.used) == 3


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"schedule": "no-such-schedule"}, ValueError, "no schedule named"),
        ({"num_classes": None}, ValueError, "num_classes must be given"),
        ({"total_steps": 0}, ValueError, "total_steps must be a whole number >= 1, got 0"),
        ({"max_lr": -1}, ValueError, "min_lr and max_lr"),
        ({"on_nonfinite": "stop"}, ValueError, "on_nonfinite must be one of"),
        ({"momentum": 0.9}, TypeError, "momentum"),
    ],
)
def test_a_mistaken_argument_is_told_before_anything_is_built(paper, arguments, error, message):
    with pytest.raises(error, match=message):
        LearnedLRCallback(**{"schedule": paper, "num_classes": 5, **arguments})


def test_a_missing_lightning_is_told_in_one_sentence():
    code = "import sys\nsys.modules['lightning'] = sys.modules['pytorch_lightning'] = None\n"
    code += "import mlrsnet.integrations.lightning"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert last.endswith("pip install 'mlrsnet[lightning]'")


def test_a_schedule_that_goes_on_long_after_the_trainer_is_told_at_the_start(paper):
    with pytest.warns(
        UserWarning, match="total_steps should be 21, the steps that the Trainer takes, got 210 from LearnedLR"
    ):
        fit(Configured(paper, total_steps=210), [LossFeed()])
