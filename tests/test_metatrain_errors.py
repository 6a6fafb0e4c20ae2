"""What MetaTrainer refuses: optimizers, arguments and gradients it cannot work with."""

import pytest
import torch
from cases import OPTIMIZERS
from meta_setting import CLASSES, Setting, make_model
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import ASGD, LBFGS, SGD, Rprop

from mlrsnet import MetaTrainer
from mlrsnet.meta import Departures, Learning
from mlrsnet.nets import LSTMNet


class Unknown(SGD):
    pass


@pytest.mark.parametrize("kind", [Rprop, LBFGS, ASGD, Unknown])
def test_an_optimizer_that_is_not_linear_is_refused_with_the_reason(kind):
    model = make_model()
    optimizer = kind(model.parameters(), lr=0.1)
    with pytest.raises(
        TypeError, match=f"optimizer must take steps that are linear in its LR, and {kind.__name__} is not"
    ):
        MetaTrainer(model, optimizer, total_steps=9, val_loss=lambda: None, num_classes=5)
    if kind is Unknown:
        learning = Learning(assume_linear=True)
        MetaTrainer(model, optimizer, total_steps=9, val_loss=lambda: None, num_classes=5, learning=learning)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"every": 0}, ValueError, "every must be a whole number >= 1, got 0"),
        ({"bptt": 0}, ValueError, "bptt must be a whole number >= 1, got 0"),
        ({"num_phases": 0}, ValueError, "num_phases must be a whole number >= 1, got 0"),
        ({"num_classes": None}, ValueError, "num_classes must be given"),
        ({"meta_optimizer": SGD([nn.Parameter(torch.ones(1))], lr=1.0)}, ValueError, "meta_optimizer must hold"),
    ],
)
def test_a_bad_argument_is_named(options, error, message):
    with pytest.raises(error, match=message):
        Setting(OPTIMIZERS["sgd"], **options)


def test_coarse_weights_a_missing_backward_and_a_bad_val_loss_are_named():
    model = make_model(False, torch.bfloat16)
    with pytest.raises(TypeError, match=r"parameters must be float32 or float64, got torch.bfloat16"):
        MetaTrainer(model, SGD(model.parameters(), lr=0.1), total_steps=9, val_loss=lambda: None, num_classes=5)
    with pytest.raises(TypeError, match=r"val_loss must be a .*Callable.*, got 1.0: pass a function without arguments"):
        MetaTrainer(make_model(), SGD(make_model().parameters(), lr=0.1), total_steps=9, val_loss=1.0, num_classes=5)
    run = Setting(OPTIMIZERS["sgd"])
    with pytest.raises(RuntimeError, match=r"call loss.backward\(\) before meta.step"):
        run.meta.step(1.5)
    run = Setting(OPTIMIZERS["sgd"])
    run.meta.val_loss = lambda: 1.0
    loss = run.backward(0)
    with pytest.raises(ValueError, match=r"val_loss\(\) must return a scalar tensor with a gradient, got 1.0"):
        run.meta.step(loss)
    with pytest.raises(ValueError, match="step needs this batch's loss, got None"):
        run.meta.step()
    with pytest.raises(ValueError, match="state_dict must be one saved by MetaTrainer"):
        run.meta.load_state_dict({"net": {}})


def test_coarse_weights_that_are_added_later_are_refused_before_anything_moves():
    run = Setting(OPTIMIZERS["sgd"], every=1)
    loss, before = run.backward(0), run.weights()
    run.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2, dtype=torch.bfloat16))]})
    with pytest.raises(TypeError, match=r"parameters must be float32 or float64, got torch.bfloat16"):
        run.meta.step(loss)
    assert torch.equal(run.weights(), before)


def test_sparse_gradients_are_refused_before_anything_moves():
    model = nn.Sequential(nn.EmbeddingBag(10, CLASSES, sparse=True))
    optimizer = SGD(model.parameters(), lr=0.1)
    meta = MetaTrainer(model, optimizer, total_steps=9, val_loss=lambda: None, num_classes=CLASSES)
    loss = cross_entropy(model(torch.randint(10, (4, 3))), torch.zeros(4, dtype=torch.int64))
    loss.backward()
    before = model[0].weight.detach().clone()
    with pytest.raises(TypeError, match="gradients must be dense for meta-training"):
        meta.step(loss)
    assert torch.equal(model[0].weight, before)


def test_a_failing_step_does_not_leave_the_measuring_lr():
    run = Setting(OPTIMIZERS["sgd"], every=1)
    loss = run.backward(0)

    def broken():
        raise RuntimeError("out of memory")

    run.meta._take = broken
    with pytest.raises(RuntimeError, match="out of memory"):
        run.meta.step(loss)
    assert run.optimizer.param_groups[0]["lr"] < 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scaler": True}, "scaler must be a .*GradScaler.* got True: pass the GradScaler that scales the loss"),
        ({"meta_optimizer": "adam"}, "meta_optimizer must be an optimizer or a function that makes one, got 'adam'"),
        ({"net": LSTMNet(4).bfloat16()}, "net must be float32 or float64, got torch.bfloat16"),
        ({"net": "lstm"}, "net must be a .*ScheduleNet.*, got 'lstm': pass LSTMNet"),
        ({"net": nn.Linear(1, 1)}, "net must be a .*ScheduleNet.*, got Linear"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_named(options, message):
    with pytest.raises(TypeError, match=message):
        Setting(OPTIMIZERS["sgd"], **options)


def test_settings_and_parts_of_the_wrong_kind_are_named():
    with pytest.raises(TypeError, match="names must be a name or a list of names, got 5"):
        Departures(5)
    with pytest.raises(ValueError, match="steps_per_epoch must be a whole number >= 1, got -3"):
        Departures(steps_per_epoch=-3)
    with pytest.raises(TypeError, match=r"optimizer must be a Optimizer, got \[1\]"):
        MetaTrainer(make_model(), [1], total_steps=9, val_loss=lambda: None, num_classes=5)
    with pytest.raises(TypeError, match="model must be a Module, got None: pass the model in training"):
        MetaTrainer(None, SGD(make_model().parameters()), total_steps=9, val_loss=lambda: None, num_classes=5)
