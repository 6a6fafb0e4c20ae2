import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import SGD, Adagrad, Adam, AdamW, NAdam, RAdam, RMSprop

from mlrsnet import LearnedLR, Schedule
from mlrsnet._optimizers import noise_scale
from mlrsnet.nets import LSTMNet
from mlrsnet.ops import DEVICE, HOST
from mlrsnet.ranges import Fixed, Gamma, PerplexityGamma, PhaseGamma, from_dict, optimizer_scale


@pytest.mark.parametrize(
    ("loss", "classes", "expected"),
    [
        (2.302585, 10, math.sqrt(2.302585) * math.log(23.02585) / (4 * 10**0.25)),
        (4.60517, 100, math.sqrt(4.60517) * math.log(460.517) / (4 * 100**0.25)),
    ],
)
def test_gamma_is_the_paper_formula(loss, classes, expected):
    assert Gamma()(loss, classes) == pytest.approx(expected, rel=1e-12)


def test_text_uses_the_perplexity():
    loss = math.log(10_000)
    assert Gamma()(loss, 10_000) == pytest.approx(0.87, abs=0.01)
    assert PerplexityGamma()(loss, 10_000) == pytest.approx(46.05, abs=0.01)


@pytest.mark.parametrize("vocabulary", [65, 10_000, 50_257])
def test_a_language_model_over_adam_starts_near_the_lr_that_adam_is_used_with(vocabulary):
    """The perplexity's range times Adam's 0.01 would begin at 0.23 with 10,000 words, 23 times the paper's 0.01."""
    torch.manual_seed(0)
    schedule = Schedule(LSTMNet()).for_text()
    starts = {}
    for kind in (SGD, Adam):
        optimizer = kind([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        lr = LearnedLR(optimizer, schedule, total_steps=9, num_classes=vocabulary)
        lr.step(math.log(vocabulary))
        optimizer.step()
        starts[kind] = lr.get_last_lr()[0]
    assert 0.01 / 4 < starts[Adam] < 0.01
    untrained = math.log(vocabulary)
    share = 0.01 * Gamma()(untrained, vocabulary) / PerplexityGamma()(untrained, vocabulary)
    assert starts[Adam] / starts[SGD] == pytest.approx(share, rel=1e-6)


ADAM, PLAIN = {"betas": (0.9, 0.999)}, {"momentum": 0.0, "dampening": 0.0}


def test_only_a_range_from_the_perplexity_is_smaller_for_optimizers_that_divide_by_the_gradient():
    for gamma in (Gamma(), PhaseGamma(), Fixed(1.0)):
        assert gamma.carry_over(ADAM, 10_000) == 0.01 * gamma.carry_over(PLAIN, 10_000) == 0.01
    text = PerplexityGamma()
    assert text.carry_over(PLAIN, 10_000) == 1
    carried = text.carry_over(ADAM, 10_000) * text(math.log(10_000), 10_000)
    assert carried == pytest.approx(0.01 * Gamma()(math.log(10_000), 10_000))


@given(st.floats(0.01, 50), st.integers(2, 100_000), st.sampled_from([Gamma(), PerplexityGamma()]))
def test_gamma_is_positive_or_refused(loss, classes, gamma):
    if gamma == Gamma() and loss * classes <= 1:
        with pytest.raises(ValueError, match="first loss must be a finite number >"):
            gamma(loss, classes)
    else:
        value = gamma(loss, classes)
        assert value > 0
        assert value == pytest.approx(float(gamma.formula(torch.tensor(loss), classes, DEVICE)), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("loss", [0.0, -1.0, 0.1, math.nan, math.inf])
def test_an_absurd_first_loss_says_what_to_pass(loss):
    with pytest.raises(
        ValueError, match=r"pass initial_loss= the loss of an untrained network, about log\(num_classes\)"
    ):
        Gamma()(loss, 10)


def test_a_first_loss_barely_above_the_limit_is_refused_too():
    with pytest.raises(ValueError, match=r"must be a finite number > 0\.3333 .* is 0 or negative below"):
        Gamma()(0.33333333333333337, 3)


@pytest.mark.parametrize(("gamma", "classes"), [(Gamma(), 3), (Gamma(), 1000), (PerplexityGamma(), 1000)])
def test_a_loss_above_the_limit_that_the_error_names_is_taken(gamma, classes):
    with pytest.raises(ValueError, match="must be a finite number >") as error:
        gamma(-1000.0, classes)
    limit = float(str(error.value).split(" > ")[1].split()[0])
    assert gamma(limit + 0.001 * abs(limit), classes) > 0
    with pytest.raises(ValueError, match="must be a finite number >"):
        gamma(limit - 0.001 * abs(limit), classes)


@pytest.mark.parametrize("classes", [None, 0, 1, 2.5, True])
def test_the_number_of_classes_is_checked(classes):
    with pytest.raises(ValueError, match="num_classes must be a whole number >= 2"):
        Gamma()(2.3, classes)


def test_a_perplexity_that_overflows_is_refused():
    with pytest.raises(ValueError, match=r"the first loss must be a finite number .*, got 1000.0"):
        PerplexityGamma()(1000.0, 10)


@pytest.mark.parametrize("value", [None, -1.0, 0, math.inf, "1"])
def test_a_fixed_range_is_a_number_above_0(value):
    with pytest.raises(ValueError, match="value of a fixed range must be"):
        Fixed(value)


@pytest.mark.parametrize("loss", [-1.0, 2.3, math.nan])
def test_a_fixed_range_is_the_same_for_every_loss(loss):
    gamma = Fixed(20.0)
    assert gamma(loss, None) == gamma.formula(loss, None, HOST) == gamma.value


@pytest.mark.parametrize(
    "plain",
    [{"policy": "best"}, {"policy": "initial", "statistic": "accuracy"}, {"policy": "measured", "value": 0.13}, {}],
    ids=str,
)
def test_a_range_of_another_version_is_refused(plain):
    with pytest.raises(ValueError, match=r"gamma must be one of the paper's ranges .* of another version of mlrsnet"):
        from_dict(plain)


WEIGHTS = [torch.nn.Parameter(torch.ones(1))]


@pytest.mark.parametrize(
    ("optimizer", "scale"),
    [
        (SGD(WEIGHTS), 1.0),
        (SGD(WEIGHTS, momentum=0.9), 0.1),
        (SGD(WEIGHTS, momentum=0.9, nesterov=True), 0.1),
        (SGD(WEIGHTS, momentum=0.9, dampening=0.5), 0.2),
        (Adam(WEIGHTS), 0.01),
        (Adam(WEIGHTS, betas=(0.0, 0.999)), 0.01),
        (AdamW(WEIGHTS), 0.01),
        (NAdam(WEIGHTS), 0.01),
        (RAdam(WEIGHTS), 0.01),
        (RMSprop(WEIGHTS), 0.01),
        (RMSprop(WEIGHTS, momentum=0.5), 0.005),
        (Adagrad(WEIGHTS), 0.01),
    ],
)
def test_the_range_is_carried_over_to_the_optimizer(optimizer, scale):
    assert optimizer_scale(optimizer.param_groups[0]) == pytest.approx(scale)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.95])
def test_muons_momentum_does_not_lengthen_its_steps(momentum):
    optimizer = torch.optim.Muon([torch.nn.Parameter(torch.ones(2, 2))], momentum=momentum)
    assert optimizer_scale(optimizer.param_groups[0]) == 0.01


@pytest.mark.parametrize(
    ("group", "m"),
    [
        (SGD(WEIGHTS).param_groups[0], 0.0),
        (SGD(WEIGHTS, momentum=0.9, dampening=0.5).param_groups[0], 0.9),
        (AdamW(WEIGHTS, betas=(0.8, 0.99)).param_groups[0], 0.8),
        (RMSprop(WEIGHTS, momentum=0.5).param_groups[0], 0.5),
        (RMSprop(WEIGHTS).param_groups[0], 0.0),
        (Adagrad(WEIGHTS).param_groups[0], 0.0),
        ({"momentum": 0.0, "betas": (torch.tensor(0.7), 0.9)}, 0.7),
        ({"beta1": None}, 0.0),
        ({"beta1": 0.6}, 0.6),
        ({"betas": ((0.5, 0.6), 0.9)}, 0.5),
        ({"momentum": None, "betas": ()}, 0.0),
    ],
)
def test_the_default_is_corrected_for_the_momentum_of_any_optimizer(group, m):
    assert noise_scale(group) == pytest.approx(math.sqrt((1 - m) / (1 + m)))


@pytest.mark.parametrize("group", [{"momentum": 1.0}, {"momentum": -0.1}, {"betas": (1.0, 0.999)}, {"beta1": math.nan}])
def test_a_momentum_that_the_default_cannot_correct_for_is_refused(group):
    with pytest.raises(ValueError, match=r"momentum or beta_1 must be in \[0, 1\)"):
        noise_scale(group)


@pytest.mark.parametrize(("key", "value"), [("momentum", 1.0), ("dampening", 1.0)])
def test_a_momentum_without_a_range_is_refused(key, value):
    with pytest.raises(ValueError, match=f"{key} must be"):
        optimizer_scale({"momentum": 0.9, key: value})
