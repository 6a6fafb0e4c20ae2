"""How fast: the rates that Section 5.1 reads off its theorems, beside the exponents of simulations over the horizon.

Under Theorem 2 the paper says: "when sigma != 0, if we set c ~ sqrt(T) and sigma = O(1), it would give the O(1/sqrt(T)) rate;
when sigma = 0, if we set c = O(1), it would give the O(1/T)." Under Eq. (eqlr) it asks for M, N ~ T.
With M and N fixed, the paper's rate here is that of its bound as printed, which has ln(T/M). With M, N ~ T, Theorem 1 as printed
falls as 1/T, after a linear rate, only if C(M) is counted as a constant.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from mlrsnet.nets import LSTMNet
from mlrsnet_lab import theory
from mlrsnet_lab.sheets import Figure, Grid
from mlrsnet_lab.theory import rates

DIMENSION, CONDITION_NUMBER = 8, 5.0
QUIET, NOISY, META_NOISE = theory.Noise(), theory.Noise(absolute=1.0), theory.Noise(absolute=0.05)
TOLERANCE = 0.05
"""A finite horizon moves an exponent by so much: terms of lower order."""

LONGEST_META = 1000
"""Algorithm 1 costs a hundred times as much as SGD."""


@dataclass(frozen=True)
class Ends:
    """M and N of a decay, which say how small its last LRs are."""

    name: str
    of: Callable[[int], tuple[float, float]]

    def decay(self, T: int) -> theory.Decay:
        """With this horizon."""
        return theory.Decay(T, *self.of(T))


FIXED = Ends("1, 2", lambda T: (1, 2))
SHARE = Ends("T/10, T/5", lambda T: (T / 10, T / 5))


@dataclass(frozen=True)
class Care:
    """c of Theorems 2 and 3, alpha_0 = 1 / (c L (1 + kappa))."""

    name: str
    of: Callable[[int], float]


ONE, TWO, ROOT = Care("1", lambda T: 1.0), Care("2", lambda T: 2.0), Care("sqrt(T)", math.sqrt)


@dataclass(frozen=True)
class Series:
    """Left and right side of a theorem over the horizons; the rate the paper states and the one its bound, as derived, has.

    exponential: values fall by a factor at every step, so their logarithm is compared with T instead of ln T, and both rates
    are the bound's own.
    """

    theorem: str
    noise: theory.Noise
    c: Care
    ends: Ends
    horizons: Sequence[int]
    measured: Sequence[float]
    bounds: Sequence[float]
    paper: rates.Rate
    derived: rates.Rate
    exponential: bool = False

    @property
    def setting(self) -> tuple[str, float, str, str]:
        """What tells it from the others."""
        return self.theorem, self.noise.absolute, self.c.name, self.ends.name

    def values(self) -> Iterator[tuple[object, ...]]:
        """A row for every horizon."""
        for T, measured, bound in zip(self.horizons, self.measured, self.bounds, strict=True):
            yield (*self.setting, T, measured, bound, measured <= bound)

    def promised(self) -> tuple[object, ...]:
        """A row: the rates of the paper and as derived, and the exponents that they and the bound have over these horizons."""
        paper, derived = self._exponents()
        return (*self.setting, self.paper.name, paper, self.derived.name, derived, self._fit(self.bounds).slope)

    def exponents(self) -> tuple[object, ...]:
        """A row: what is measured, and whether it falls at least as fast as the paper says, and as derived."""
        seen = self._fit(self.measured)
        margin = (0.0 if self.exponential else TOLERANCE) + 2 * seen.error
        paper, derived = self._exponents()
        return (*self.setting, seen.slope, seen.error, seen.slope <= paper + margin, seen.slope <= derived + margin)

    def _exponents(self) -> tuple[float, float]:
        if self.exponential:
            return (self._fit(self.bounds).slope,) * 2
        return self.paper.fit(self.horizons).slope, self.derived.fit(self.horizons).slope

    def _fit(self, values: Sequence[float]) -> theory.Fit:
        if not self.exponential:
            return theory.fit_exponent(self.horizons, values)
        there = [
            (T, math.log(value)) for T, value in zip(self.horizons, values, strict=True) if value > 0
        ]  # no underflow
        return theory.fit_line([T for T, _ in there], [log for _, log in there])


LOSS, MEAN, LEAST, META = "1: loss", "2: weighted mean", "2: least", "3: least"
EXPONENTIAL = rates.Rate("exp(-T)", lambda T: math.exp(-T))


def loss(horizons: Sequence[int], seed: int) -> Iterator[Series]:
    """Theorem 1 with M and N fixed and with M, N ~ T."""
    problem = theory.Quadratic.spaced(DIMENSION, CONDITION_NUMBER)
    for noise, ends, paper, derived in (
        (NOISY, FIXED, rates.SQUARED_LOG_INVERSE, rates.SQUARED_LOG_INVERSE),
        (NOISY, SHARE, rates.INVERSE, rates.CONSTANT),
        (QUIET, SHARE, EXPONENTIAL, EXPONENTIAL),
    ):
        measured, bounds = [], []
        for T in horizons:
            decay = ends.decay(T)
            lrs = decay.lrs(theory.initial_lr(noise, smoothness=problem.smoothness))
            gap = theory.simulate(problem, lrs, noise, seed=seed).gap
            known = {"smoothness": problem.smoothness, "pl_constant": problem.pl_constant, "first_gap": float(gap[0])}
            measured.append(float(gap[-1]))
            bounds.append(theory.theorem1_bound(decay, noise, **known))
        yield Series(LOSS, noise, ONE, ends, horizons, measured, bounds, paper, derived, exponential=noise == QUIET)


def gradient(horizons: Sequence[int], seed: int) -> Iterator[Series]:
    """Theorem 2: the paper's two choices of c, each beside the other's, and M and N fixed."""
    for noise, c, ends, paper, derived in (
        (NOISY, ROOT, SHARE, rates.INVERSE_ROOT, rates.INVERSE_ROOT),
        (NOISY, TWO, SHARE, rates.CONSTANT, rates.CONSTANT),
        (NOISY, ROOT, FIXED, rates.LOG_INVERSE_ROOT, rates.LOG_INVERSE_ROOT),
        (QUIET, TWO, SHARE, rates.INVERSE, rates.INVERSE),
        (QUIET, ROOT, SHARE, rates.INVERSE_ROOT, rates.INVERSE_ROOT),
        (QUIET, TWO, FIXED, rates.LOG_INVERSE, rates.LOG_INVERSE),
    ):
        found = [squared_gradients(T, noise, c.of(T), ends.decay(T), seed) for T in horizons]
        means, least, bounds = ([one[place] for one in found] for place in range(3))
        yield Series(MEAN, noise, c, ends, horizons, means, bounds, paper, derived)
        yield Series(LEAST, noise, c, ends, horizons, least, bounds, paper, derived)


def squared_gradients(
    T: int, noise: theory.Noise, c: float, decay: theory.Decay, seed: int
) -> tuple[float, float, float]:
    """The weighted mean, the minimum, and the bound of both, on the slow quadratic of this horizon."""
    lrs = decay.lrs(theory.initial_lr(noise, smoothness=1.0, c=c))
    problem = theory.Quadratic.slow(DIMENSION, float(lrs.sum()))
    far = math.sqrt(2 / problem.pl_constant)  # its loss is 1 at every horizon
    run = theory.simulate(problem, lrs, noise, start=[1.0] * (DIMENSION - 1) + [far], seed=seed)
    decrease = float(run.gap[0] - run.gap[-1])
    bound = theory.theorem2_bound(decay, noise, smoothness=problem.smoothness, decrease=decrease, c=c)
    return run.weighted_squared_gradient, run.least_squared_gradient, bound


def meta_gradient(horizons: Sequence[int], seed: int) -> Iterator[Series]:
    """Theorem 3: its rate, M and N in proportion to T, and c ~ sqrt(T)."""
    horizons = [T for T in horizons if T <= LONGEST_META]
    for c, ends, paper, derived in (
        (TWO, FIXED, rates.INVERSE_LOG, rates.INVERSE_LOG),
        (TWO, SHARE, rates.INVERSE_LOG, rates.CONSTANT),
        (ROOT, FIXED, rates.INVERSE_TIMES_LOG, rates.INVERSE_ROOT_LOG),
    ):
        measured, bounds = [], []
        for T in horizons:
            track = meta_track(ends.decay(T), c.of(T), seed)
            measured.append(float(track.running_minimum[-1]))
            bounds.append(float(track.bound[-1]))
        yield Series(META, META_NOISE, c, ends, horizons, measured, bounds, paper, derived)


def meta_track(decay: theory.Decay, c: float, seed: int) -> theory.MetaTrack:
    """Algorithm 1 with a fresh network on the quadratic."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = LSTMNet(8)
    problem, adam = (
        theory.Quadratic.spaced(DIMENSION, CONDITION_NUMBER),
        theory.MetaAdam(lr=1.0, epsilon=1.0, beta2=0.99),
    )
    return theory.track_meta_gradient(net, problem, decay, META_NOISE, adam, c=c, runs=4, seed=seed)


SETTING = ("theorem", "sigma", "c", "M, N")


def grids(found: Sequence[Series]) -> tuple[Grid, Grid, Grid]:
    """The values over the horizons, the exponents promised, and those measured."""
    values = Grid(
        "Rates: values",
        (*SETTING, "T", "measured", "bound", "holds"),
        [row for one in found for row in one.values()],
        "Theorem 2 on a quadratic that is slow at its horizon, the others on one quadratic for all.",
    )
    promised = Grid(
        "Rates: promised",
        (*SETTING, "paper", "paper's exponent", "derived", "derived exponent", "bound's exponent"),
        [one.promised() for one in found],
        "Slopes of ln(value) against ln(T), of exp(-T) against T. Those of a rate with a logarithm are over the same horizons.",
    )
    exponents = Grid(
        "Rates: measured",
        (*SETTING, "exponent", "its error", "as the paper says", "as derived"),
        [one.exponents() for one in found],
        f"The last columns say whether it falls at least so fast, within two standard errors and {TOLERANCE:g}.",
    )
    return values, promised, exponents


def figure(found: Sequence[Series]) -> Figure:
    """The weighted mean of Theorem 2 over the horizon."""
    lines = {
        f"sigma = {one.noise.absolute:g}, c = {one.c.name}": (one.horizons, one.measured)
        for one in found
        if one.theorem == MEAN and one.ends is SHARE
    }
    return Figure("Theorem 2, weighted mean, M and N in proportion to T", "T", lines)
