"""Evolution strategies: the gradient of a quadratic, and ranks that no scale, cliff or NaN can move."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlrsnet_lab.horizon.evolution import antithetic, centred_ranks, gradient

SIZE, SIGMA = 6, 0.3


class Quadratic:
    """f(x) = x'Ax / 2 + b'x, its gradient Ax + b, at a point."""

    def __init__(self, size=SIZE):
        random = torch.Generator().manual_seed(0)
        root = torch.randn(size, size, generator=random, dtype=torch.float64)
        self.A = root @ root.T + torch.eye(size)
        self.b, self.x = torch.randn(2, size, generator=random, dtype=torch.float64)
        self.slope = self.A @ self.x + self.b

    def along(self, directions, sigma=SIGMA):
        """(..., n) values at x + sigma eps."""
        points = self.x + sigma * directions
        return 0.5 * torch.einsum("...i,ij,...j->...", points, self.A, points) + points @ self.b


def complete(size, rotation=None):
    """2 size mirrored directions with sum eps eps' = n I."""
    half = math.sqrt(size) * (torch.eye(size, dtype=torch.float64) if rotation is None else rotation)
    return torch.cat((half, -half))


@pytest.mark.parametrize("sigma", [1e-3, 0.3, 10.0])
def test_directions_that_cover_the_space_evenly_give_the_gradient_of_a_quadratic_exactly(sigma):
    f = Quadratic()
    rotation, _ = torch.linalg.qr(f.A + torch.arange(SIZE).diag())
    for directions in (complete(SIZE), complete(SIZE, rotation)):
        torch.testing.assert_close(directions.T @ directions, 2 * SIZE * torch.eye(SIZE, dtype=torch.float64))
        found = gradient(f.along(directions, sigma), directions, sigma)
        torch.testing.assert_close(found, f.slope, rtol=1e-10, atol=1e-10)


def test_the_mean_over_tasks_is_taken_whatever_the_shape():
    f, tasks = Quadratic(), 3
    directions = antithetic(tasks * 8, SIZE, torch.Generator().manual_seed(2)).double().view(tasks, 2, 8, SIZE)
    values = f.along(directions)
    found = gradient(values, directions, SIGMA)
    each = [gradient(values[i, j], directions[i, j], SIGMA) for i in range(tasks) for j in range(2)]
    torch.testing.assert_close(found, torch.stack(each).mean(0))
    torch.testing.assert_close(found, gradient(values.flatten(), directions.flatten(0, 2), SIGMA))


@pytest.mark.parametrize("sigma", [0.05, 3.0])
def test_random_pairs_give_the_gradient_of_a_quadratic_in_the_mean(sigma):
    """A pair gives eps eps' g, of mean g and covariance g'g I + g g': five standard errors of the mean are allowed."""
    f, pairs = Quadratic(), 100_000
    directions = antithetic(pairs, SIZE, torch.Generator().manual_seed(1)).double()
    found = gradient(f.along(directions, sigma), directions, sigma)
    error = ((f.slope.square().sum() + f.slope.square()) / pairs).sqrt()
    assert (error < 0.01 * f.slope.norm()).all()
    assert ((found - f.slope).abs() < 5 * error).all()


def test_ranks_point_uphill():
    f = Quadratic()
    directions = antithetic(1000, SIZE, torch.Generator().manual_seed(1)).double()
    found = gradient(centred_ranks(f.along(directions, 1e-3)), directions, 1e-3)
    assert torch.cosine_similarity(found, f.slope, dim=0) > 0.99


def test_every_direction_has_its_mirror_image():
    eps = antithetic(5, 3, torch.Generator().manual_seed(0))
    assert eps.shape == (10, 3)
    assert torch.equal(eps[:5], -eps[5:])
    assert len(eps.unique(dim=0)) == 10


def test_directions_are_those_of_the_seed_and_normal():
    eps = antithetic(20_000, 3, torch.Generator().manual_seed(0))
    assert torch.equal(eps, antithetic(20_000, 3, torch.Generator().manual_seed(0)))
    assert not torch.equal(eps, antithetic(20_000, 3, torch.Generator().manual_seed(1)))
    covariance = eps.T @ eps / len(eps)
    assert (covariance - torch.eye(3)).abs().max() < 5 * math.sqrt(2 / 20_000)


@pytest.mark.parametrize(
    ("values", "ranks"),
    [
        ([3.0, 1.0, 2.0], [0.5, -0.5, 0.0]),
        ([1.0, 1.0], [0.0, 0.0]),
        ([5.0, 5.0, 5.0, 5.0], [0.0] * 4),
        ([1.0, 2.0, 2.0, 9.0, 2.0], [-0.5, 0.0, 0.0, 0.5, 0.0]),
        ([math.nan, 2.0, 1.0], [0.5, 0.0, -0.5]),
        ([math.inf, 2.0, 1.0], [0.5, 0.0, -0.5]),
        ([-math.inf, 2.0, 1.0], [0.5, 0.0, -0.5]),
        ([math.nan, 1.0, math.inf, 2.0, -math.inf], [0.25, -0.5, 0.25, -0.25, 0.25]),
        ([math.nan, math.nan], [0.0, 0.0]),
        ([3.0e38, math.inf], [-0.5, 0.5]),
    ],
)
def test_equal_values_share_a_rank_and_what_is_not_finite_is_worst(values, ranks):
    assert centred_ranks(torch.tensor(values)).tolist() == pytest.approx(ranks)


def test_tasks_are_ranked_each_for_itself():
    values = torch.tensor([[1.0, 2.0, 3.0], [300.0, 200.0, 100.0], [math.nan, 7.0, 7.0]])
    expected = torch.stack([centred_ranks(row) for row in values])
    assert torch.equal(centred_ranks(values), expected)
    assert torch.equal(centred_ranks(values.unsqueeze(1)).squeeze(1), expected)


POPULATIONS = st.lists(
    st.one_of(st.integers(-30, 30).map(float), st.sampled_from([math.nan, math.inf])), min_size=2, max_size=12
)


@given(POPULATIONS)
def test_ranks_are_centred_and_lie_within_a_half(values):
    ranks = centred_ranks(torch.tensor(values))
    assert float(ranks.sum()) == pytest.approx(0, abs=1e-5)
    assert ranks.abs().max() <= 0.5


@given(POPULATIONS, st.sampled_from([lambda x: 1e6 * x + 3, torch.exp, lambda x: x**3, torch.atan]))
def test_no_change_of_scale_moves_a_rank(values, increasing):
    values = torch.tensor(values, dtype=torch.float64)
    changed = torch.where(values.isfinite(), increasing(values), math.nan)
    assert torch.equal(centred_ranks(changed), centred_ranks(values))


@given(POPULATIONS, st.randoms(use_true_random=False))
def test_ranks_do_not_depend_on_the_order_of_the_members(values, random):
    order = list(range(len(values)))
    random.shuffle(order)
    fitness = torch.tensor(values)
    assert torch.equal(centred_ranks(fitness[order]), centred_ranks(fitness)[order])


@given(POPULATIONS)
def test_a_better_member_never_has_a_higher_rank(values):
    ranks = centred_ranks(torch.tensor(values)).tolist()
    clean = [value if math.isfinite(value) else math.inf for value in values]
    for a, rank_a in zip(clean, ranks, strict=True):
        for b, rank_b in zip(clean, ranks, strict=True):
            assert (rank_a < rank_b) == (a < b)


def test_a_cliff_cannot_outvote_the_other_members():
    values = torch.tensor([0.1, 0.2, 0.3, 0.4])
    cliff = torch.tensor([0.1, 0.2, 0.3, 4e20])
    assert torch.equal(centred_ranks(values), centred_ranks(cliff))
