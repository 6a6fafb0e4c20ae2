"""Optimizers that no schedule can serve, optimizers that are not known, and others who set the LR."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR

from mlrsnet import LearnedLR

ANY = ("universal-lstm", "universal")


def weights():
    torch.manual_seed(0)
    return list(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)).parameters())


def train(optimizer, lr, losses=(1.1, 1.0, 0.9), after=lambda: None):
    for loss in losses:
        for group in optimizer.param_groups:
            for weight in group["params"]:
                weight.grad = torch.ones_like(weight)
        lr.step(loss)
        optimizer.step()
        after()


OWN = {
    "prodigyopt": ["Prodigy"],
    "dadaptation": ["DAdaptAdam", "DAdaptSGD", "DAdaptAdaGrad", "DAdaptLion", "DAdaptAdan"],
    "dog": ["DoG", "LDoG"],
    "schedulefree": ["AdamWScheduleFree", "SGDScheduleFree", "RAdamScheduleFree", "AdamWScheduleFreeClosure"],
    "torch.optim": ["ASGD", "LBFGS", "Rprop"],
}


@pytest.mark.parametrize("schedule", ANY)
@pytest.mark.parametrize(("package", "name"), [(package, name) for package, names in OWN.items() for name in names])
def test_an_optimizer_that_sets_its_own_lr_is_refused_with_what_to_do(package, name, schedule):
    optimizer = getattr(pytest.importorskip(package), name)(weights())
    with pytest.raises(
        ValueError, match=rf"^optimizer must leave its LR to the schedule, got {name}, which .* AdamW, or"
    ):
        LearnedLR(optimizer, schedule, total_steps=9)


def test_a_subclass_under_another_name_is_refused_too():
    class Mine(pytest.importorskip("prodigyopt").Prodigy):
        pass

    with pytest.raises(ValueError, match="got Mine, which estimates its own LR"):
        LearnedLR(Mine(weights()), total_steps=9)


@pytest.mark.parametrize("name", ["Mechanic", "MechanizedSGD"])
def test_mechanic_is_refused_by_the_name_of_its_class(name):
    optimizer = type(name, (torch.optim.SGD,), {})(weights(), lr=1.0)
    with pytest.raises(ValueError, match=f"got {name}, which estimates its own LR"):
        LearnedLR(optimizer, total_steps=9)


@pytest.mark.parametrize("name", ["HDSGD", "HDAdam", "L4", "RTHO"])
def test_the_baselines_set_their_lr_themselves(name):
    make = getattr(pytest.importorskip("mlrsnet_lab.baselines"), name)
    with pytest.raises(ValueError, match=f"got {name}, which sets its LR itself"):
        LearnedLR(make(weights()), total_steps=9)


@pytest.mark.parametrize("package", ["transformers", "timm.optim"])
def test_an_adafactor_with_steps_of_its_own_says_how_to_turn_them_off(package):
    adafactor = pytest.importorskip(package).Adafactor
    with pytest.raises(
        ValueError, match=r"got Adafactor with relative_step=True.*: pass any lr.* and relative_step=False"
    ):
        LearnedLR(adafactor(weights()), total_steps=9)
    options = {"relative_step": False} if package == "transformers" else {}
    optimizer = adafactor(weights(), lr=1e-3, **options)
    train(optimizer, LearnedLR(optimizer, total_steps=9))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_an_optimizer_whose_lrs_have_no_ratio_is_refused(value, kind):
    optimizer = SGD(weights(), lr=0.1)
    optimizer.param_groups[0]["lr"] = kind(value)
    with pytest.raises(
        ValueError, match=r"lr of the parameter groups must be finite numbers >= 0.*: only their ratios count"
    ):
        LearnedLR(optimizer, total_steps=9)


def test_an_lr_that_is_a_tensor_of_integers_is_refused():
    """Every LR that is written into it would be 0, and the network would not train."""
    with pytest.raises(TypeError, match=r"lr of the parameter groups .*, got one of torch.int64.*: pass torch.tensor"):
        LearnedLR(SGD(weights(), lr=torch.tensor(1)), total_steps=9)


def test_an_optimizer_without_hooks_is_refused_with_what_to_do():
    class Bare(Optimizer):
        def __init__(self, parameters):
            self.param_groups, self.state, self.defaults = [{"params": list(parameters), "lr": 0.1}], {}, {}

    with pytest.raises(ValueError, match=r"got Bare, which does not call Optimizer.__init__: call it there"):
        LearnedLR(Bare(weights()), total_steps=5)


def test_a_group_without_an_lr_is_told():
    with pytest.raises(
        ValueError, match=r"an LR in each of its parameter groups, got None in group 1 of SGD: pass an lr"
    ):
        optimizer = SGD([{"params": weights()}], lr=0.1)
        optimizer.add_param_group({"params": weights(), "lr": 0.1})
        optimizer.param_groups[1]["lr"] = None
        LearnedLR(optimizer, total_steps=9)


@pytest.mark.parametrize("name", ["lars", "madgrad", "adadelta"])
def test_a_range_made_for_other_optimizers_says_what_it_assumed(name):
    make = pytest.importorskip("timm.optim").create_optimizer_v2
    with pytest.warns(
        UserWarning, match=r"not made for this optimizer, which gets that of SGD: compare .*scale=, or use 'universal'"
    ):
        LearnedLR(make(weights(), opt=name, lr=0.1), "universal-lstm", total_steps=9)
    LearnedLR(make(weights(), opt=name, lr=0.1), total_steps=9)  # measured: a warning would be an error


def first_lr(optimizer, schedule):
    lr = LearnedLR(optimizer, schedule, total_steps=9)
    lr.step(1.1)
    optimizer.step()
    return lr.get_last_lr()[0]


def test_the_adafactor_of_transformers_gets_the_range_of_adam():
    adafactor = pytest.importorskip("transformers").Adafactor(weights(), lr=1e-3, relative_step=False)
    assert first_lr(adafactor, "universal-lstm") == first_lr(AdamW(weights()), "universal-lstm")


@pytest.mark.parametrize("name", ["RMSprop", "RMSprop8bit"])
def test_the_average_of_squares_is_not_taken_for_momentum(name):
    """bitsandbytes has it where Adam has beta_1."""
    kind = getattr(pytest.importorskip("bitsandbytes").optim, name)
    for schedule in ANY:
        assert first_lr(kind(weights()), schedule) == pytest.approx(first_lr(RMSprop(weights()), schedule))


def test_another_scheduler_on_the_same_optimizer_is_told_once():
    optimizer = SGD(weights(), lr=0.1)
    lr, other = LearnedLR(optimizer, total_steps=9), CosineAnnealingLR(optimizer, 9)
    with pytest.warns(UserWarning, match=r"the LR of parameter group 0 was changed from .*no other scheduler") as told:
        train(optimizer, lr, (1.1, 1.0, 0.9, 0.8), after=other.step)
    assert len(told) == 1


def test_an_optimizers_own_checkpoint_between_two_steps_is_no_other_scheduler(kind):
    optimizer = AdamW(weights(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=9)
    train(optimizer, lr)
    optimizer.load_state_dict(optimizer.state_dict())
    train(optimizer, lr)
    optimizer.add_param_group({"params": weights(), "lr": kind(0.3)})
    train(optimizer, lr)
    assert lr.last_epoch == 9
