"""The schedules of Section 5.1 and the bounds of Theorems 1, 2 and 3, as pure functions of their constants.

Each bound is what the appendix's proof gives once its slips are corrected, for SGD w_{t+1} = w_t - alpha_t v_t from w_1,
t = 1..T. Paper symbols: L, mu, kappa, sigma from (A1) to (A3), see `problems`; a, b, M, N from `Decay`, K = 1 / a.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mlrsnet_lab import checks
from mlrsnet_lab.theory.problems import Noise

LARGEST_EXPONENT = 700.0
"""exp() of more overflows a float: a bound that needs it is infinite."""

ROUNDING = 1e-12
"""How far rounding alone may lift an LR above its limit."""


@dataclass(frozen=True)
class Decay:
    """The LRs the theorems assume, Eq. 14: alpha_t = alpha_{t-1} beta_t, 1/K <= a <= beta_t <= b <= 1, t = 1..T.

    a = (M/T)^(1/T) and b = (N/T)^(1/T) with 0 < M < N <= T, so alpha_T lies between M/T and N/T of alpha_0. Every
    K >= 1/a gives a bound, and 1/a the best one, so K is 1/a.

    >>> decay = Decay(T=100, M=1, N=4)
    >>> [round(decay.lrs(1.0, position)[-1].item(), 6) for position in (0.0, 1.0)]
    [0.01, 0.04]
    """

    T: int
    M: float
    N: float

    def __post_init__(self) -> None:
        checks.whole_number("T", self.T, 3, "it is the number of SGD steps")
        checks.positive("M", self.M, "the last LR is at least M/T of alpha_0")
        if not self.M < checks.real("N", self.N) <= self.T:
            raise ValueError(
                f"N must be in (M, T] = ({self.M:g}, {self.T}], got {self.N!r}: the last LR is at most N/T of alpha_0"
            )

    @property
    def a(self) -> float:
        """(M/T)^(1/T), the fastest decay of one step."""
        return math.pow(self.M / self.T, 1 / self.T)

    @property
    def b(self) -> float:
        """(N/T)^(1/T), the slowest decay of one step."""
        return math.pow(self.N / self.T, 1 / self.T)

    def lrs(self, alpha_0: float, position: float | Tensor = 0.5) -> Tensor:
        """alpha_1, ..., alpha_T with beta_t = a^(1-s) b^s; s in [0, 1] is the position, one for all steps or one for each."""
        checks.positive("alpha_0", alpha_0, "initial_lr gives the theorems' own")
        s = torch.as_tensor(position, dtype=torch.float64)
        if not bool(((s >= 0) & (s <= 1)).all()):
            raise ValueError(f"position must be in [0, 1], got {position!r}: 0 is the fastest decay, 1 the slowest")
        log_beta = (1 - s) * math.log(self.a) + s * math.log(self.b)
        return alpha_0 * log_beta.expand(self.T).cumsum(0).exp()

    def least_sum(self, alpha_0: float) -> float:
        """sum_t alpha_t >= alpha_0 (T - M) / (K ln(T/M))  (proof of Theorem 1)."""
        return alpha_0 * (self.T - self.M) * self.a / math.log(self.T / self.M)

    def largest_sum(self, alpha_0: float, power: int = 1) -> float:
        """sum_t alpha_t^s <= alpha_0^s (T + s ln(T/N)) min(1, 1 / ln(T/N)), s = 1 or 2 (eqsumat; proof of Theorem 3)."""
        log = math.log(self.T / self.N)
        return alpha_0**power * (self.T + power * log) * (1 / log if log > 1 else 1.0)


def initial_lr(noise: Noise, *, smoothness: float, c: float = 1.0) -> float:
    """alpha_0 = 1 / (c L (1 + kappa)): c = 1 in Theorem 1, c > 1 in Theorems 2 and 3, whose proofs also allow 1."""
    checks.positive("smoothness", smoothness, "L, the largest curvature")
    if checks.real("c", c) < 1:
        raise ValueError(f"c must be >= 1, got {c!r}: a larger LR need not decrease the loss")
    return 1 / (c * smoothness * (1 + noise.relative))


def recursion_bound(lrs: Tensor, noise: Noise, *, smoothness: float, pl_constant: float, first_gap: float) -> Tensor:
    """Bounds E f(w_t) - f* for t = 1..T+1 by delta_{t+1} = (1 - mu alpha_t) delta_t + L sigma alpha_t^2 / 2  (eqdelta).

    For any LRs up to 1 / (L (1 + kappa)); with that LR at every step and L = mu it is attained by (A3) with equality.
    """
    _check_pl(smoothness, pl_constant, first_gap)
    largest, limit = float(lrs.max()), initial_lr(noise, smoothness=smoothness)
    if largest > limit * (1 + ROUNDING):
        raise ValueError(f"lrs must be <= 1 / (L (1 + kappa)) = {limit:.6g}, got {largest:.6g}: lower them")
    deltas = [first_gap]
    for alpha in lrs.tolist():
        deltas.append((1 - pl_constant * alpha) * deltas[-1] + smoothness * noise.absolute * alpha**2 / 2)
    return torch.tensor(deltas, dtype=torch.float64)


def theorem1_bound(decay: Decay, noise: Noise, *, smoothness: float, pl_constant: float, first_gap: float) -> float:
    """Bounds E f(w_{T+1}) - f* under (A1, A2, A3) with alpha_0 = 1 / (L (1 + kappa)).

    exp(-mu alpha_0 (T - M) / (K ln(T/M))) delta_1 + L sigma / 2 * R, R as in `theorem1_printed`, which lost L sigma / 2.
    """
    bias, R = _theorem1_terms(decay, noise, smoothness, pl_constant, first_gap)
    return bias + (smoothness * noise.absolute / 2 * R if noise.absolute else 0.0)


def theorem1_printed(decay: Decay, noise: Noise, *, smoothness: float, pl_constant: float, first_gap: float) -> float:
    """Theorem 1 as printed, which bounds nothing: its second term does not grow with the noise.

    C(M) exp(-mu alpha_0 T / (K ln(T/M))) delta_1 + R with C(M) = exp(mu alpha_0 M / (K ln(T/M))) and
    R = 2 K^2 C(M) ln^2(T/M) (N/M)^2 / (e^2 mu^2 (1 - M/N) T).
    """
    return sum(_theorem1_terms(decay, noise, smoothness, pl_constant, first_gap))


def theorem2_bound(decay: Decay, noise: Noise, *, smoothness: float, decrease: float, c: float = 1.0) -> float:
    """Bounds min_{1<=t<=T} E||grad f(w_t)||^2 under (A1, A3) with alpha_0 = 1 / (c L (1 + kappa)).

    K ln(T/M) / (T - M) * [2 c L (1 + kappa) (E f(w_1) - E f(w_{T+1})) + sigma (T + 2 ln(T/N)) / (c (1 + kappa))].
    It bounds the mean with weights alpha_t too. decrease: the difference of the losses, or more, such as f(w_1) - f*.
    """
    T, N, sigma = decay.T, decay.N, noise.absolute
    alpha_0 = initial_lr(noise, smoothness=smoothness, c=c)
    squares = alpha_0**2 * (T + 2 * math.log(T / N))  # eqsumat
    return (2 * checks.real("decrease", decrease) + smoothness * sigma * squares) / decay.least_sum(alpha_0)


@dataclass(frozen=True)
class MetaAdam:
    """Algorithm (algadam), without bias correction; the proof of Theorem 3 uses g_t where it has m_t, that is beta1 = 0.

    m_t = beta1 m_{t-1} + (1 - beta1) g_t;  v_t = beta2 v_{t-1} + (1 - beta2) g_t^2
    phi_{t+1} = phi_t - eta m_t / (sqrt(v_t) + epsilon)
    """

    lr: float
    epsilon: float
    beta2: float
    beta1: float = 0.0

    def __post_init__(self) -> None:
        checks.positive("meta lr", self.lr, "eta of Theorem 3")
        checks.positive("epsilon", self.epsilon, "Theorem 3 divides by it")
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            checks.below_one(name, beta, "it weighs the past")

    def meets_theorem3(self, *, meta_smoothness: float, meta_gradient_bound: float) -> bool:
        """eta <= epsilon / (2 L_A), 1 - beta2 <= epsilon^2 / (16 G^2), beta1 = 0: print has L for L_A and rho for G."""
        small_step = 2 * meta_smoothness * self.lr <= self.epsilon
        long_memory = 16 * meta_gradient_bound**2 * (1 - self.beta2) <= self.epsilon**2
        return small_step and long_memory and self.beta1 == 0


def theorem3_bound(
    decay: Decay,
    noise: Noise,
    adam: MetaAdam,
    *,
    smoothness: float,
    gradient_bound: float,
    meta_gradient_bound: float,
    first_val_gap: float,
    meta_noise: float = 0.0,
    c: float = 1.0,
) -> float:
    """Bounds min_t E||grad_phi f_Val(w_hat_t(phi_t))||^2 where `MetaAdam.meets_theorem3`; Delta_1 = f_Val(w_hat_1) - f*_Val.

    2 G_eps / (T eta) {Delta_1 + rho^2 S_1 + L/2 [(1 + kappa) rho^2 + sigma] S_2} + G_eps / epsilon * meta_noise,
    G_eps = sqrt(beta2) G + epsilon, S_s >= sum_t alpha_t^s, rho >= ||grad f||, G >= every entry of the meta-gradient,
    meta_noise: the meta-gradient's variance over validation batches, the proof's sigma^2 / B.
    """
    L, rho, kappa, sigma = smoothness, gradient_bound, noise.relative, noise.absolute
    checks.positive("gradient_bound", rho, "rho, the largest norm of a gradient")
    checks.positive("meta_gradient_bound", meta_gradient_bound, "G, the largest entry of a meta-gradient")
    checks.not_negative("first_val_gap", first_val_gap)
    checks.not_negative("meta_noise", meta_noise)
    alpha_0 = initial_lr(noise, smoothness=L, c=c)
    S_1, S_2 = decay.largest_sum(alpha_0, 1), decay.largest_sum(alpha_0, 2)
    G_eps = math.sqrt(adam.beta2) * meta_gradient_bound + adam.epsilon
    total = first_val_gap + rho**2 * S_1 + L / 2 * ((1 + kappa) * rho**2 + sigma) * S_2
    return 2 * G_eps / (decay.T * adam.lr) * total + G_eps / adam.epsilon * meta_noise


def _theorem1_terms(decay: Decay, noise: Noise, L: float, mu: float, first_gap: float) -> tuple[float, float]:
    """The two terms `theorem1_printed` shows; C(M) exp(-mu T ...) is one exponential, so it cannot overflow."""
    _check_pl(L, mu, first_gap)
    T, M, N, K = decay.T, decay.M, decay.N, 1 / decay.a
    rate = mu * initial_lr(noise, smoothness=L) / (K * math.log(T / M))
    C = math.exp(rate * M) if rate * M < LARGEST_EXPONENT else math.inf
    R = 2 * K**2 * C * math.log(T / M) ** 2 * (N / M) ** 2 / (math.e**2 * mu**2 * (1 - M / N) * T)
    return math.exp(-rate * (T - M)) * first_gap, R


def _check_pl(smoothness: float, pl_constant: float, first_gap: float) -> None:
    checks.positive("smoothness", smoothness, "L, the largest curvature")
    checks.positive("pl_constant", pl_constant, "without the PL condition use theorem2_bound")
    if pl_constant > smoothness:
        raise ValueError(f"pl_constant must be <= smoothness = {smoothness!r}, got {pl_constant!r}: mu cannot exceed L")
    checks.not_negative("first_gap", first_gap)
