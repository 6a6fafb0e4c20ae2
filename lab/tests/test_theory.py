"""The theorems of Section 5.1: simulations stay below the derived bounds, and leave them where an assumption is broken."""

import math

import pytest
import torch

from mlrsnet.nets import LSTMNet
from mlrsnet_lab.recipes import theory_rates
from mlrsnet_lab.theory import (
    Decay,
    MetaAdam,
    Noise,
    Quadratic,
    Waves,
    fit_exponent,
    fit_line,
    initial_lr,
    recursion_bound,
    simulate,
    theorem1_bound,
    theorem1_printed,
    theorem2_bound,
    theorem3_bound,
    track_meta_gradient,
)

HORIZONS = (10, 100, 600)
NOISES = (Noise(), Noise(relative=0.5), Noise(absolute=1.0), Noise(relative=1.0, absolute=4.0))
CONDITIONS = (1.0, 10.0, 100.0)


@pytest.fixture(autouse=True)
def _repeatable():
    torch.manual_seed(0)


def bowl(condition_number):
    return Quadratic.spaced(8, condition_number, smoothness=2.0)


def constants(problem, start=1.0):
    point = torch.full((len(problem.eigenvalues),), start, dtype=torch.float64)
    return {
        "smoothness": problem.smoothness,
        "pl_constant": problem.pl_constant,
        "first_gap": float(problem.loss(point)),
    }


def exact_gaps(problem, lrs, noise):
    """E f(w_t) - f* without sampling: on a quadratic the second moments of SGD obey a linear recursion."""
    eigenvalues = torch.tensor(problem.eigenvalues, dtype=torch.float64)
    moments, gaps = torch.ones_like(eigenvalues), []
    for lr in [*lrs.tolist(), 0.0]:
        gaps.append((eigenvalues * moments).sum() / 2)
        variance = noise.relative * (eigenvalues**2 * moments).sum() + noise.absolute
        moments = (1 - lr * eigenvalues) ** 2 * moments + lr**2 * variance / len(eigenvalues)
    return torch.stack(gaps)


# --- the assumptions ---


@pytest.mark.parametrize("problem", [Quadratic.spaced(5, 20.0), Waves.spaced(5, 20.0)], ids=["quadratic", "waves"])
def test_gradients_are_those_of_the_loss_and_the_smoothness_is_the_largest_curvature(problem):
    w = torch.randn(64, 5, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(problem.loss(w).sum(), w)
    torch.testing.assert_close(problem.gradient(w), gradient)
    other = torch.randn(64, 5, dtype=torch.float64)
    change = (problem.gradient(w) - problem.gradient(other)).norm(dim=1)
    assert bool((change <= problem.smoothness * (w - other).norm(dim=1)).all())
    at_minimum = torch.autograd.functional.hessian(problem.loss, torch.zeros(5, dtype=torch.float64))
    assert float(torch.linalg.matrix_norm(at_minimum, 2)) == pytest.approx(problem.smoothness)


def test_the_quadratic_has_the_pl_condition_and_the_waves_have_not():
    w = torch.randn(200, 5, dtype=torch.float64)
    problem = Quadratic.spaced(5, 20.0)
    assert bool((problem.gradient(w).square().sum(1) / 2 >= problem.pl_constant * problem.loss(w)).all())
    waves, top = Waves((1.0,)), torch.tensor([math.pi], dtype=torch.float64)
    assert waves.loss(top) > 1
    assert waves.gradient(top).abs().item() < 1e-12


@pytest.mark.parametrize("noise", NOISES)
def test_the_noise_is_unbiased_and_has_exactly_the_variance_of_assumption_a3(noise):
    gradient = torch.tensor([3.0, 0.0, -4.0], dtype=torch.float64).expand(200_000, 3)
    v = noise.around(gradient, torch.Generator().manual_seed(0))
    variance = noise.relative * 25 + noise.absolute
    torch.testing.assert_close((v - gradient).square().sum(1), torch.full((200_000,), variance, dtype=torch.float64))
    assert float((v.mean(0) - gradient[0]).abs().max()) <= 5 * math.sqrt(variance / 200_000)


@pytest.mark.parametrize("position", [0.0, 1.0, 0.3, "random", "alternating"])
def test_every_schedule_keeps_to_the_ratios_and_sums_the_proofs_use(position):
    decay, alpha_0 = Decay(T=50, M=2, N=5), 0.7
    choices = {"random": torch.rand(50, dtype=torch.float64), "alternating": torch.arange(50) % 2}
    lrs = decay.lrs(alpha_0, choices.get(position, position))
    ratios = lrs / torch.cat((lrs.new_tensor([alpha_0]), lrs[:-1]))
    assert bool(((decay.a * (1 - 1e-9) <= ratios) & (ratios <= decay.b * (1 + 1e-9))).all())
    assert 2 / 50 * (1 - 1e-9) <= lrs[-1] / alpha_0 <= 5 / 50 * (1 + 1e-9)
    assert decay.least_sum(alpha_0) <= float(lrs.sum()) <= decay.largest_sum(alpha_0)
    assert float((lrs**2).sum()) <= min(decay.largest_sum(alpha_0, 2), alpha_0**2 * (50 + 2 * math.log(10)))


@pytest.mark.parametrize("N", [5, 40, 50])
def test_the_upper_sums_hold_for_the_slowest_decay_whatever_its_end(N):
    decay = Decay(T=50, M=2, N=N)
    lrs = decay.lrs(0.7, position=1.0)
    for power in (1, 2):
        assert float((lrs**power).sum()) <= decay.largest_sum(0.7, power) * (1 + 1e-12)


@pytest.mark.parametrize("noise", NOISES)
def test_the_simulation_agrees_with_the_exact_moments(noise):
    problem = bowl(10.0)
    lrs = Decay(T=40, M=1, N=2).lrs(initial_lr(noise, smoothness=2.0))
    simulated, exact = simulate(problem, lrs, noise, runs=4096).gap, exact_gaps(problem, lrs, noise)
    torch.testing.assert_close(simulated, exact, rtol=0.05 if noise != Noise() else 1e-9, atol=0.0)


# --- Theorem 1 ---


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("T", HORIZONS)
def test_the_loss_stays_below_theorem_1(T, noise, condition):
    problem = bowl(condition)
    for M, N in ((1, 3), (0.5, T)):
        decay = Decay(T=T, M=M, N=N)
        lrs = decay.lrs(initial_lr(noise, smoothness=2.0), torch.rand(T, dtype=torch.float64))
        recursion = recursion_bound(lrs, noise, **constants(problem))
        assert bool((exact_gaps(problem, lrs, noise) <= recursion * (1 + 1e-12)).all())
        simulated = float(simulate(problem, lrs, noise, runs=128).gap[-1])
        assert simulated <= float(recursion[-1]) <= theorem1_bound(decay, noise, **constants(problem))


@pytest.mark.parametrize("noise", NOISES)
def test_the_recursion_cannot_be_sharpened(noise):
    problem, lrs = bowl(1.0), torch.full((30,), initial_lr(noise, smoothness=2.0), dtype=torch.float64)
    recursion = recursion_bound(lrs, noise, **constants(problem))
    torch.testing.assert_close(exact_gaps(problem, lrs, noise), recursion, rtol=1e-9, atol=1e-12)
    simulated = float(simulate(problem, lrs, noise, runs=4096).gap[3])
    assert simulated == pytest.approx(float(recursion[3]), rel=0.05, abs=1e-12)


@pytest.mark.parametrize("T", HORIZONS)
def test_theorem_1_is_of_the_right_size_where_noise_dominates(T):
    problem, noise, decay = bowl(1.0), Noise(absolute=1.0), Decay(T=T, M=1, N=2)
    lrs = decay.lrs(initial_lr(noise, smoothness=2.0))
    ratio = theorem1_bound(decay, noise, **constants(problem)) / float(simulate(problem, lrs, noise).gap[-1])
    assert 1 < ratio < 100


@pytest.mark.parametrize("T", HORIZONS)
def test_the_printed_theorem_1_fails_under_strong_noise_and_the_derived_one_does_not(T):
    problem, noise, decay = bowl(1.0), Noise(absolute=1e3), Decay(T=T, M=1, N=2)
    lrs = decay.lrs(initial_lr(noise, smoothness=2.0))
    simulated = float(simulate(problem, lrs, noise).gap[-1])
    assert theorem1_printed(decay, noise, **constants(problem)) < simulated
    assert simulated < theorem1_bound(decay, noise, **constants(problem))


def test_print_and_proof_differ_by_the_factor_l_sigma_over_2_in_the_second_term():
    decay, setting = Decay(T=50, M=1, N=3), {"smoothness": 4.0, "pl_constant": 0.5, "first_gap": 3.0}
    bias = theorem1_bound(decay, Noise(relative=0.2), **setting)
    noise = Noise(relative=0.2, absolute=5.0)
    derived, printed = theorem1_bound(decay, noise, **setting) - bias, theorem1_printed(decay, noise, **setting) - bias
    assert derived / printed == pytest.approx(4.0 * 5.0 / 2)


def test_the_bounds_are_the_appendix_s_displays_letter_by_letter():
    T, M, N, K, L, mu, kappa, sigma, c, delta_1, log = (
        50,
        1.5,
        4.0,
        (50 / 1.5) ** (1 / 50),
        3.0,
        0.5,
        0.2,
        5.0,
        2.0,
        7.0,
        math.log(50 / 1.5),
    )
    decay, noise = Decay(T, M, N), Noise(kappa, sigma)
    C = math.exp(mu * M / (K * L * (1 + kappa) * log))
    first = C * math.exp(-mu * T / (K * L * (1 + kappa) * log)) * delta_1
    second = 2 * K**2 * C * log**2 * (N / M) ** 2 / (math.e**2 * mu**2 * (1 - M / N) * T)
    setting = {"smoothness": L, "pl_constant": mu, "first_gap": delta_1}
    assert theorem1_printed(decay, noise, **setting) == pytest.approx(first + second)
    assert theorem1_bound(decay, noise, **setting) == pytest.approx(first + L * sigma / 2 * second)
    squares = (T + 2 * math.log(T / N)) / (c**2 * L**2 * (1 + kappa) ** 2)
    total = (T - M) / (c * K * L * (1 + kappa) * log)
    expected = (2 * delta_1 + L * sigma * squares) / total
    assert theorem2_bound(decay, noise, smoothness=L, decrease=delta_1, c=c) == pytest.approx(expected)


def test_an_lr_above_the_theorem_s_breaks_the_bound():
    problem, noise, decay = bowl(10.0), Noise(absolute=0.01), Decay(T=100, M=50, N=90)
    lrs = decay.lrs(5 * initial_lr(noise, smoothness=2.0))
    simulated = simulate(problem, lrs, noise, runs=16)
    assert float(simulated.gap.max()) > 10 * recursion_bound(lrs / 5, noise, **constants(problem)).max()
    first_gap = float(simulated.gap[0])
    assert simulated.weighted_squared_gradient > theorem2_bound(decay, noise, smoothness=2.0, decrease=first_gap)
    with pytest.raises(ValueError, match=r"lrs must be <= 1 / \(L \(1 \+ kappa\)\)"):
        recursion_bound(lrs, noise, **constants(problem))


def test_a_final_lr_in_proportion_to_the_first_leaves_a_floor_however_long_the_run():
    problem, noise = bowl(1.0), Noise(absolute=1.0)
    alpha_0 = initial_lr(noise, smoothness=2.0)

    def end(decay):
        return float(exact_gaps(problem, decay.lrs(alpha_0), noise)[-1])

    fixed = [Decay(T=T, M=1, N=2) for T in (100, 1000)]
    proportional = [Decay(T=T, M=0.1 * T, N=0.2 * T) for T in (100, 1000)]
    assert end(fixed[1]) < 0.3 * end(fixed[0])
    assert end(proportional[1]) > 0.9 * end(proportional[0])
    bounds = [theorem1_bound(decay, noise, **constants(problem)) for decay in (*fixed, *proportional)]
    assert bounds[1] < bounds[0]
    assert bounds[3] > 1e6 * bounds[2]  # C(M) grows exponentially with M
    assert theorem1_bound(Decay(10**6, 10**5, 2 * 10**5), noise, **constants(problem)) == math.inf


# --- Theorem 2 ---


@pytest.mark.parametrize("problem", [bowl(10.0), Waves.spaced(8, 10.0, smoothness=2.0)], ids=["quadratic", "waves"])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("T", HORIZONS)
def test_the_gradient_stays_below_theorem_2_with_and_without_the_pl_condition(T, noise, problem):
    for c, M, N in ((1.5, 1, 3), (math.sqrt(T), 0.5 * T, T)):
        decay = Decay(T=T, M=M, N=N)
        lrs = decay.lrs(initial_lr(noise, smoothness=2.0, c=c), position=0.7)
        seen = simulate(problem, lrs, noise, start=2.5, runs=64)
        bound = theorem2_bound(decay, noise, smoothness=2.0, decrease=float(seen.gap[0] - seen.gap[-1]), c=c)
        assert seen.least_squared_gradient <= seen.weighted_squared_gradient <= bound
        assert bound <= theorem2_bound(decay, noise, smoothness=2.0, decrease=float(seen.gap[0]), c=c)


def test_theorem_2_is_nearly_attained_by_an_almost_constant_lr():
    problem, noise, decay = bowl(1.0), Noise(absolute=1.0), Decay(T=400, M=380, N=390)
    lrs = decay.lrs(initial_lr(noise, smoothness=2.0))
    seen = simulate(problem, lrs, noise)
    bound = theorem2_bound(decay, noise, smoothness=2.0, decrease=float(seen.gap[0] - seen.gap[-1]))
    assert 1 < bound / seen.weighted_squared_gradient < 1.2


def test_the_log_that_theorem_2_leaves_out_grows_unless_m_grows_with_t():
    def left_out(T, M, N):
        derived = theorem2_bound(Decay(T, M, N), Noise(absolute=1.0), smoothness=2.0, decrease=0.0, c=2.0)
        printed = 1.0 * T / (2.0 * (T - M) * Decay(T, M, N).a)
        return derived / printed

    assert left_out(10**6, 1, 2) > 1.9 * left_out(10**3, 1, 2)
    assert left_out(10**6, 10**5, 10**6) == pytest.approx(left_out(10**3, 10**2, 10**3), rel=0.01)


# --- Theorem 3 ---


@pytest.fixture(scope="module")
def net():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LSTMNet(8)


@pytest.mark.parametrize("noise", [Noise(), Noise(relative=0.5, absolute=0.05)])
@pytest.mark.parametrize("T", [20, 100])
def test_the_meta_gradient_stays_below_theorem_3(net, T, noise):
    problem, decay, adam = Quadratic.spaced(4, 10.0), Decay(T=T, M=1, N=2), MetaAdam(lr=3.0, epsilon=0.5, beta2=0.99)
    track = track_meta_gradient(net, problem, decay, noise, adam, c=2.0, runs=4)
    assert track.meets_assumptions
    rounding = 1e-14 * track.val_losses
    assert bool((track.meta_decrease >= track.sure_decrease - rounding).all())
    mean_so_far = track.squared_norms.mean(0).cumsum(0) / torch.arange(1, T + 1)
    assert bool((track.running_minimum <= mean_so_far).all())
    assert bool((mean_so_far <= track.bound).all())
    closed = theorem3_bound(
        decay,
        noise,
        adam,
        smoothness=problem.smoothness,
        gradient_bound=track.gradient_bound,
        meta_gradient_bound=track.meta_gradient_bound,
        first_val_gap=float(track.val_losses[:, 0].mean()),
        c=2.0,
    )
    assert float(track.bound[-1]) <= closed


def test_the_step_of_adam_is_nearly_as_small_as_the_proof_allows(net):
    adam = MetaAdam(lr=3.0, epsilon=0.5, beta2=0.99)
    track = track_meta_gradient(net, Quadratic.spaced(4, 10.0), Decay(T=30, M=1, N=2), Noise(absolute=0.05), adam)
    assert 1 < float(track.meta_decrease.sum() / track.sure_decrease.sum()) < 4


def test_a_meta_lr_above_the_theorem_s_is_noticed_and_breaks_the_decrease(net):
    adam = MetaAdam(lr=300.0, epsilon=0.5, beta2=0.99)
    track = track_meta_gradient(net, Quadratic.spaced(4, 10.0), Decay(T=20, M=1, N=2), Noise(absolute=0.05), adam)
    assert not track.meets_assumptions
    assert float(track.meta_decrease.sum()) < float(track.sure_decrease.sum())


def test_the_meta_gradient_is_the_one_autograd_gives_and_adam_moves_along_it(net):
    problem, decay, noise = Quadratic.spaced(4, 10.0), Decay(T=3, M=1, N=2), Noise()
    adam = MetaAdam(lr=0.5, epsilon=0.1, beta2=0.9, beta1=0.3)
    before = [weight.detach().clone() for weight in net.parameters()]
    track = track_meta_gradient(net, problem, decay, noise, adam, c=2.0, runs=2)
    assert all(torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True))
    assert not track.meets_assumptions  # beta1 = 0 in the proof

    own = LSTMNet(8).double()
    own.load_state_dict({name: weight.double() for name, weight in net.state_dict().items()})
    w, state = torch.ones(4, dtype=torch.float64), own.initial_state()
    mean, square = ([torch.zeros_like(weight) for weight in own.parameters()] for _ in range(2))
    for t, lr in enumerate(decay.lrs(0.5, position=1.0).tolist()):
        loss = problem.loss(w).reshape(1)
        factor, _ = own(loss, state)
        val_loss = problem.loss(w - lr * factor * problem.gradient(w))
        gradients = torch.autograd.grad(val_loss, list(own.parameters()))
        expected = sum(float(gradient.square().sum()) for gradient in gradients)
        assert track.squared_norms[:, t].tolist() == pytest.approx([expected] * 2, rel=1e-9)
        with torch.no_grad():
            for weight, gradient, m, v in zip(own.parameters(), gradients, mean, square, strict=True):
                m.mul_(0.3).add_(0.7 * gradient)
                v.mul_(0.9).add_(0.1 * gradient**2)
                weight -= 0.5 * m / (v.sqrt() + 0.1)
            factor, state = own(loss, state)
            w = w - lr * factor * problem.gradient(w)


def test_the_rate_of_theorem_3_is_one_over_c_log_t_and_needs_a_fixed_n():
    def bound(T, N, c):
        adam = MetaAdam(lr=0.1, epsilon=1.0, beta2=0.99)
        measured = {"smoothness": 1.0, "gradient_bound": 1.0, "meta_gradient_bound": 0.1, "first_val_gap": 1.0}
        return theorem3_bound(Decay(T, N / 2, N), Noise(), adam, **measured, c=c)

    assert bound(10**12, 1, 1e3) / bound(10**6, 1, 1e3) == pytest.approx(0.5, rel=0.02)
    assert bound(10**12, 1, 2e3) / bound(10**12, 1, 1e3) == pytest.approx(0.5, rel=0.02)  # print: a quarter
    assert bound(10**12, 10**11, 1e3) == pytest.approx(bound(10**6, 10**5, 1e3), rel=0.01)  # no decay in T at all


def test_validation_noise_enters_theorem_3_as_a_constant():
    decay, adam = Decay(100, 1, 2), MetaAdam(lr=0.1, epsilon=0.5, beta2=0.81)
    measured = {"smoothness": 1.0, "gradient_bound": 1.0, "meta_gradient_bound": 0.2, "first_val_gap": 1.0}
    added = theorem3_bound(decay, Noise(), adam, **measured, meta_noise=2.0)
    added -= theorem3_bound(decay, Noise(), adam, **measured)
    assert added == pytest.approx((0.9 * 0.2 + 0.5) / 0.5 * 2.0)


# --- rates ---

TIMES = (30, 100, 300, 1000)


def test_an_exponent_and_its_error_are_those_of_least_squares():
    fit = fit_exponent((10, 100, 1000), (1.0, 0.1, 0.01))
    assert (fit.slope, fit.error) == (pytest.approx(-1.0), pytest.approx(0.0, abs=1e-12))
    x, y = torch.arange(5, dtype=torch.float64), torch.tensor([1.0, 0.0, 3.0, 2.0, 5.0], dtype=torch.float64)
    design = torch.stack((torch.ones_like(x), x), 1)
    expected = torch.linalg.lstsq(design, y[:, None])
    variance = (y - (design @ expected.solution)[:, 0]).square().sum() / 3 * torch.linalg.inv(design.T @ design)[1, 1]
    fit = fit_line(x.tolist(), y.tolist())
    assert (fit.slope, fit.error) == (pytest.approx(float(expected.solution[1])), pytest.approx(float(variance.sqrt())))


def test_the_slow_direction_is_where_the_gradient_stays_largest():
    def left(curvature, total_lr=50.0):
        return curvature * math.exp(-2 * curvature * total_lr)

    curvature = Quadratic.slow(3, 50.0).pl_constant
    assert left(curvature) > max(left(0.8 * curvature), left(1.25 * curvature))
    assert Quadratic.slow(3, 50.0).smoothness == 1.0


def weighted_exponent(noise, c, ends):
    found = [theory_rates.squared_gradients(T, noise, c(T), ends.decay(T), seed=0) for T in TIMES]
    assert all(least <= mean <= bound for mean, least, bound in found)
    return [fit_exponent(TIMES, [one[place] for one in found]).slope for place in range(3)]


def test_under_noise_the_gradient_falls_as_one_over_root_t_for_c_as_root_t_and_stays_for_a_fixed_c():
    mean, least, bound = weighted_exponent(theory_rates.NOISY, math.sqrt, theory_rates.SHARE)
    assert (mean, bound) == (pytest.approx(-0.5, abs=0.03), pytest.approx(-0.5, abs=0.03))
    assert -0.7 < least < -0.5
    later = [
        theory_rates.squared_gradients(T, theory_rates.NOISY, 2.0, Decay(T, T / 10, T / 5), 0) for T in (500, 5000)
    ]
    assert all(after > 0.7 * before for before, after in zip(*later, strict=True))


def test_without_noise_the_gradient_falls_as_one_over_t_unless_c_grows():
    mean, least, bound = weighted_exponent(theory_rates.QUIET, lambda T: 2.0, theory_rates.SHARE)
    assert all(slope == pytest.approx(-1.0, abs=0.03) for slope in (mean, least, bound))
    assert weighted_exponent(theory_rates.QUIET, math.sqrt, theory_rates.SHARE)[0] == pytest.approx(-0.5, abs=0.03)


def test_fixed_m_and_n_cost_theorem_2_a_logarithm():
    mean = weighted_exponent(theory_rates.QUIET, lambda T: 2.0, theory_rates.FIXED)[0]
    assert mean == pytest.approx(theory_rates.rates.LOG_INVERSE.fit(TIMES).slope, abs=0.03)
    assert mean > -0.9


def test_a_rate_that_is_not_reached_is_told():
    values = [T**-0.5 for T in TIMES]
    rates = theory_rates.rates

    def told(paper, derived):
        setting = (theory_rates.NOISY, theory_rates.TWO, theory_rates.SHARE, TIMES)
        return theory_rates.Series("2", *setting, values, values, paper, derived).exponents()[-2:]

    assert told(rates.INVERSE, rates.INVERSE_ROOT) == (False, True)
    assert told(rates.CONSTANT, rates.INVERSE_TIMES_LOG) == (True, False)


# --- errors ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Quadratic(()), "eigenvalues must hold at least one number"),
        (lambda: Quadratic((1.0, -1.0)), "eigenvalues must be > 0, got -1.0"),
        (lambda: Quadratic.spaced(3, 0.5), "condition_number must be >= 1, got 0.5"),
        (lambda: Noise(absolute=-1.0), "absolute noise must be >= 0, got -1.0"),
        (lambda: Noise(relative=math.nan), "relative noise must be a finite number"),
        (lambda: Decay(T=2, M=1, N=2), "T must be a whole number >= 3, got 2"),
        (lambda: Decay(T=10, M=0, N=2), "M must be > 0, got 0"),
        (lambda: Decay(T=10, M=3, N=3), r"N must be in \(M, T\] = \(3, 10\], got 3"),
        (lambda: Decay(T=10, M=3, N=11), r"N must be in \(M, T\]"),
        (lambda: Decay(T=10, M=1, N=2).lrs(0.1, position=1.5), r"position must be in \[0, 1\], got 1.5"),
        (lambda: initial_lr(Noise(), smoothness=1.0, c=0.5), "c must be >= 1, got 0.5"),
        (
            lambda: theorem1_bound(Decay(10, 1, 2), Noise(), smoothness=1.0, pl_constant=2.0, first_gap=1.0),
            "pl_constant must be <= smoothness = 1.0, got 2.0",
        ),
        (
            lambda: theorem1_bound(Decay(10, 1, 2), Noise(), smoothness=1.0, pl_constant=0.0, first_gap=1.0),
            "pl_constant must be > 0, got 0.0: without the PL condition use theorem2_bound",
        ),
        (lambda: simulate(bowl(1.0), torch.ones(3), Noise(), runs=0), "runs must be a whole number >= 1, got 0"),
        (lambda: fit_exponent((10, 100), (1.0, 0.1)), "points must be a whole number >= 3, got 2"),
        (lambda: fit_exponent((10, 20, 30), (1.0, 0.1, 0.0)), "value must be > 0, got 0"),
        (lambda: MetaAdam(lr=0.1, epsilon=0.1, beta2=1.0), r"beta2 must be in \[0, 1\), got 1.0"),
        (
            lambda: track_meta_gradient(
                LSTMNet(4, loss_scale="initial"), bowl(1.0), Decay(10, 1, 2), Noise(), MetaAdam(0.1, 0.1, 0.9)
            ),
            "net must have loss_scale='none', got 'initial'",
        ),
    ],
)
def test_errors_name_the_argument_and_the_rule(call, message):
    with pytest.raises(ValueError, match=message):
        call()
