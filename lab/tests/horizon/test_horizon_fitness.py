"""What a training came to: calibrated losses against a grid of temperatures, errors counted by hand."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from mlrsnet_lab.horizon.fitness import FITNESS, calibrated_loss, loss


def make(seed=0, members=3, examples=40, classes=5, skill=1.0, scale=2.0, positions=()):
    """Outputs that know something about their targets, in double precision; the members' confidences differ."""
    random = torch.Generator().manual_seed(seed)
    targets = torch.randint(classes, (members, examples, *positions), generator=random)
    outputs = torch.randn(*targets.shape, classes, generator=random, dtype=torch.float64)
    outputs += skill * torch.nn.functional.one_hot(targets, classes)
    confidence = scale * torch.logspace(-0.5, 0.5, members, dtype=torch.float64).view(-1, *[1] * (outputs.ndim - 1))
    return confidence * outputs, targets


def mask(outputs, classes):
    """-inf from this class on."""
    return outputs.masked_fill(torch.arange(outputs.shape[-1]) >= classes, -math.inf)


@pytest.mark.parametrize("positions", [(), (7,)])
def test_the_loss_is_torchs_member_by_member(positions):
    outputs, targets = make(positions=positions)
    expected = [cross_entropy(o.flatten(0, -2), t.flatten()) for o, t in zip(outputs, targets, strict=True)]
    torch.testing.assert_close(loss(outputs, targets), torch.stack(expected), rtol=1e-12, atol=1e-12)


@given(st.integers(0, 1000), st.floats(0.05, 20), st.floats(-1, 4), st.integers(2, 6))
def test_calibration_never_makes_a_loss_larger(seed, scale, skill, classes):
    outputs, targets = make(seed, classes=classes, skill=skill, scale=scale)
    assert (calibrated_loss(outputs, targets) <= loss(outputs, targets)).all()


@pytest.mark.parametrize("right", [2, 3, 4, 9, 49])
def test_a_network_that_is_as_sure_as_it_is_right_has_nothing_to_gain(right):
    """One answer in right + 1 is wrong, and the odds that the network gives say so: the best temperature is 1."""
    outputs = torch.tensor([math.log(right), 0.0], dtype=torch.float64).expand(1, right + 1, 2)
    targets = torch.tensor([[0] * right + [1]])
    found, expected = calibrated_loss(outputs, targets), loss(outputs, targets)
    assert found <= expected
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=0)


@given(st.integers(0, 1000), st.floats(0.2, 5))
def test_a_networks_confidence_does_not_matter(seed, factor):
    outputs, targets = make(seed, skill=2.0, scale=1.0)
    assume(
        (outputs.argmax(-1) != targets).any(-1).all()
    )  # one that is always right would want to be surer than any temperature
    torch.testing.assert_close(
        calibrated_loss(factor * outputs, targets), calibrated_loss(outputs, targets), rtol=2e-6, atol=2e-7
    )


def best_of_a_grid(outputs, targets):
    grid = torch.logspace(math.log10(0.02), math.log10(1000), 6001).tolist()
    return torch.stack([loss(outputs / tau, targets) for tau in [*grid, 1.0]]).min(dim=0).values


@pytest.mark.parametrize("positions", [(), (3,)])
@pytest.mark.parametrize(("skill", "scale"), [(1.0, 0.3), (1.0, 1.0), (1.0, 10.0), (3.0, 1.0), (3.0, 10.0)])
def test_calibration_finds_what_a_fine_grid_of_temperatures_finds(skill, scale, positions):
    outputs, targets = make(skill=skill, scale=scale, positions=positions)
    found = calibrated_loss(outputs, targets)
    torch.testing.assert_close(found, best_of_a_grid(outputs, targets), rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize(("skill", "scale"), [(-1.0, 10.0), (0.0, 10.0), (3.0, 0.1), (50.0, 1.0)])
def test_calibration_comes_close_where_the_best_temperature_lies_at_an_end_of_the_range(skill, scale):
    outputs, targets = make(skill=skill, scale=scale)
    found = calibrated_loss(outputs, targets)
    torch.testing.assert_close(found, best_of_a_grid(outputs, targets), rtol=5e-3, atol=1e-5)


def test_calibration_rewards_knowledge_where_the_loss_rewards_modesty():
    """The first network knows more and is overconfident; the second knows nothing."""
    outputs, targets = make(members=1, examples=2000, skill=1.0, scale=40.0)
    both, targets = torch.cat((outputs, torch.zeros_like(outputs))), targets.expand(2, -1)
    assert loss(both, targets).argmin() == 1
    assert calibrated_loss(both, targets).argmin() == 0


def test_a_network_that_is_always_right_has_no_loss_left():
    outputs, targets = make(skill=50.0)
    assert calibrated_loss(outputs, targets).max() < 1e-6


@pytest.mark.parametrize("name", FITNESS)
@pytest.mark.parametrize("positions", [(), (4,)])
def test_members_are_judged_together_as_one_by_one(name, positions):
    outputs, targets = make(members=5, positions=positions)
    outputs[2] = math.nan
    fitness = FITNESS[name]
    alone = torch.cat([fitness(outputs[i : i + 1], targets[i : i + 1]) for i in range(5)])
    together = fitness(outputs, targets)
    assert together.shape == (5,)
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("fitness", [loss, calibrated_loss])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_lost_training_stays_lost(fitness, value):
    outputs, targets = make()
    clean = fitness(outputs, targets)
    outputs[1, 5] = value
    found = fitness(outputs, targets)
    assert not found[1].isfinite()
    assert torch.equal(found[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize("name", FITNESS)
def test_masked_classes_count_as_if_they_were_not_there(name):
    outputs, targets = make(classes=6)
    targets = targets % 4
    found = FITNESS[name](mask(outputs, 4), targets)
    torch.testing.assert_close(found, FITNESS[name](outputs[..., :4], targets), rtol=1e-12, atol=1e-12)
    assert found.isfinite().all()


def test_members_may_have_different_numbers_of_classes():
    outputs, targets = make(members=2, classes=6)
    targets[0] %= 3
    mixed = torch.stack((mask(outputs[0], 3), outputs[1]))
    found = calibrated_loss(mixed, targets)
    torch.testing.assert_close(found[:1], calibrated_loss(outputs[:1, :, :3], targets[:1]), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[1:], calibrated_loss(outputs[1:], targets[1:]), rtol=1e-12, atol=1e-12)
