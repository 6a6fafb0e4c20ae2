"""What the weights tell of a network before its first step."""

import pytest
import torch
from torch import nn
from torch.optim import SGD

from mlrsnet import LearnedLR
from mlrsnet.facts import SHORTEST_GAIN

MATRIX = torch.ones(3, 4)


def used(length):
    """The gains of a norm after a training."""
    return torch.linspace(0.6, 1.4, length)


def told(*weights):
    """What `status` says of a network with these weights."""
    parameters = [nn.Parameter(weight.clone()) for weight in weights]
    optimizer = SGD(parameters, lr=0.1)
    lr = LearnedLR(optimizer, total_steps=9)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return lr.status()


@pytest.mark.parametrize("mean", [1.0, -1.0, 20.0])
def test_a_norm_whose_gains_vary_around_a_mean_was_trained(mean):
    assert told(MATRIX, mean * used(16))["is_trained"]


@pytest.mark.parametrize(
    "vector",
    [torch.ones(16), torch.zeros(16), torch.full((16,), 1e-4), torch.full((16,), 0.5), torch.linspace(-1, 1, 16)],
    ids=["a new norm", "biases", "layer scale", "a constant", "random biases"],
)
def test_vectors_as_they_begin_are_not_taken_for_those_of_a_trained_network(vector):
    assert not told(MATRIX, vector)["is_trained"]


def test_a_network_with_as_many_new_norms_as_used_ones_counts_as_new():
    assert not told(MATRIX, used(16), torch.ones(16))["is_trained"]
    assert told(MATRIX, used(16), used(16), torch.ones(16))["is_trained"]


def test_a_vector_too_short_to_tell_is_not_taken_for_a_used_norm():
    assert told(MATRIX, used(SHORTEST_GAIN))["is_trained"]
    assert not told(MATRIX, used(SHORTEST_GAIN - 1))["is_trained"]


@pytest.mark.parametrize("norm", [torch.ones(16), used(16)], ids=["new", "used"])
def test_norms_are_found_by_their_gains(norm):
    assert not told(MATRIX, MATRIX, torch.zeros(3))["has_norms"]
    assert told(MATRIX, MATRIX, norm)["has_norms"]


def test_a_complex_number_counts_as_two_and_weights_of_any_form_are_counted():
    seen = told(MATRIX, torch.ones(2, 2, dtype=torch.complex64), torch.ones(5, dtype=torch.complex64), torch.ones(()))
    assert (seen["parameters"], seen["matrices"], seen["has_norms"], seen["is_trained"]) == (
        12 + 8 + 10 + 1,
        2,
        False,
        False,
    )
    assert told(MATRIX, torch.ones(0), torch.ones(2, 3, 4))["parameters"] == 12 + 24


def test_the_distance_is_that_of_all_matrices_together_however_small():
    weights = [nn.Parameter(torch.full(shape, 3.0)) for shape in ((1, 1), (2, 2), (70, 80))]
    before = torch.cat([weight.detach().flatten() for weight in weights])
    optimizer = SGD(weights, lr=0.1)
    lr = LearnedLR(optimizer, total_steps=9)
    for weight, gradient in zip(weights, (300.0, 20.0, 1.0), strict=True):
        weight.grad = torch.full_like(weight, gradient)
    optimizer.step()
    moved = torch.cat([weight.detach().flatten() for weight in weights]) - before
    assert lr.status()["distance"] == pytest.approx(float(moved.norm() / before.norm()), rel=1e-4)
