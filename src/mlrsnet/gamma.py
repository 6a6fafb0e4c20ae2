"""The range of the LR: alpha_t = gamma * p_t with p_t in (0, 1).

The paper's range comes from the first loss f_0 and the number of classes C (Section 3.2.1):

    gamma = sqrt(f_0) * log(f_0 * C) / (4 * C^(1/4))

For language models the authors use the first *perplexity*, exp(f_0), instead of f_0, and C is the size of the vocabulary.
The loss would give a gamma of 0.87; the perplexity gives about 46, which is the size of LR such models need.
The range is for plain SGD; `optimizer_scale` carries it over to other optimizers, and `Gamma.adaptive_share` takes the
perplexity's part out of it where the optimizer divides by the size of the gradient.
"""

import math
from dataclasses import dataclass
from typing import Any

from mlrsnet import _check
from mlrsnet._numbers import HOST, Operations

POLICIES = ("initial", "per-phase", "fixed", "relative", "measured")
STATISTICS = ("loss", "perplexity")
LAW = ("horizon_power", "size_power", "depth_power", "caution")
"""Fields of a `Gamma` that only a measured range has."""

USUAL_STEPS, USUAL_SIZE, USUAL_DEPTH = 500, 10_000, 4
"""For which the law of a measured range is 1."""

ADAPTIVE_SCALE = 0.01
"""Adam-like optimizers and Muon divide by the size of the gradient, so their LRs are about a hundredth of SGD's."""

ADAPTIVE_KEYS = ("betas", "beta2_decay", "centered", "initial_accumulator_value", "clip_threshold")
"""Of parameter groups of Adam-like optimizers, torch's Adafactor, RMSprop, Adagrad, and other Adafactors."""

ORTHOGONAL_KEY = "ns_steps"
"""Of parameter groups of Muon: Newton-Schulz."""


@dataclass(frozen=True)
class Gamma:
    """How a schedule finds its range.

    Args:
        policy: `initial` computes it once, from the first loss, as in the paper. `per-phase` computes it again whenever the phase
            changes, from the loss of that step's batch, and keeps the old one where the formula is not positive. The authors'
            program takes another loss, and the formula's size: see `LearnedLR.renew_gamma`. `fixed` is `value`. `relative` is
            `value` times |w| / |d|: every step moves the weights by a fraction of their own length. `measured` is `value` times
            the same ratio, averaged over the steps that the optimizer took, and corrected for momentum.
        statistic: `loss`, or `perplexity` for language models.
        value: of the policies `fixed`, `relative` and `measured`.
        horizon_power, size_power, depth_power: of the policy `measured`, whose range is value * `law`.
        caution: of the policy `measured`: the share of their length that steps keep in a network that comes from another
            training, until the loss has fallen.
    """

    policy: str = "initial"
    statistic: str = "loss"
    value: float | None = None
    horizon_power: float = 0.0
    size_power: float = 0.0
    depth_power: float = 0.0
    caution: float = 1.0

    def __post_init__(self) -> None:
        _check.one_of("gamma policy", self.policy, POLICIES)
        _check.one_of("gamma statistic", self.statistic, STATISTICS)
        if not self.needs_classes:
            value = _check.positive("gamma value", self.value, f"a {self.policy} range needs its value, such as 1.0")
            if type(self.value) is not int:  # 1 and 1.0 have different fingerprints: one that was given stays
                object.__setattr__(self, "value", value)
        elif self.value is not None:
            raise ValueError(
                f"gamma value belongs to the policies 'fixed', 'relative' and 'measured', got {self.value!r} with "
                f"{self.policy!r}"
            )

        for name in LAW:
            object.__setattr__(self, name, _check.real(f"gamma {name}", getattr(self, name)))
        if not 0 < self.caution <= 1:
            raise ValueError(f"gamma caution must be in (0, 1], a share of the LR, got {self.caution!r}")
        if not self.is_measured and [getattr(self, name) for name in LAW] != [0, 0, 0, 1]:
            raise ValueError(f"gamma {', '.join(LAW)} belong to the policy 'measured', got them with {self.policy!r}")

    def law(self, total_steps: int, parameters: int, depth: int) -> float:
        """A measured range relative to `value`: (T / 500)^a (n / 10,000)^b max(1, L / 4)^c.

        Longer trainings and larger networks want shorter steps, and so do deep networks without normalisation, where changes
        multiply up.

        Args:
            total_steps: T, of the whole training.
            parameters: n, numbers that are trained.
            depth: L, matrices that are not normalised; see `_weights.Facts`.

        >>> Gamma("measured", value=0.1, horizon_power=-0.5, depth_power=-1.0).law(2000, 10_000, depth=8)
        0.25
        """
        horizon = (total_steps / USUAL_STEPS) ** self.horizon_power
        size = (parameters / USUAL_SIZE) ** self.size_power
        return float(horizon * size * max(1.0, depth / USUAL_DEPTH) ** self.depth_power)

    @property
    def is_relative(self) -> bool:
        """Whether each step is a fraction of the weights' length, by its own direction."""
        return self.policy == "relative"

    @property
    def is_measured(self) -> bool:
        """Whether steps are fractions of the weights' length on average, by the steps that the optimizer took."""
        return self.policy == "measured"

    @property
    def needs_classes(self) -> bool:
        """Whether `num_classes` enters the range."""
        return self.policy not in ("fixed", "relative", "measured")

    def adaptive_share(self, num_classes: int | None) -> float:
        """The share of the range that is left for optimizers that divide by the size of the gradient; see `is_adaptive`.

        The perplexity makes the range large because SGD's gradients are small in language models. These optimizers make up for
        that themselves, so they get the range of the loss: the ratio of both ranges for an untrained network, whose loss is
        log(C). It is 1 for every other range.

        >>> Gamma().adaptive_share(10)
        1.0
        >>> round(Gamma(statistic="perplexity").adaptive_share(10_000), 4)
        0.0188
        """
        if not self.needs_classes or self.statistic != "perplexity" or num_classes is None:
            return 1.0
        untrained = math.log(num_classes)
        return Gamma()(untrained, num_classes) / Gamma(statistic="perplexity")(untrained, num_classes)

    def __call__(self, loss: float, num_classes: int | None, name: str = "the first loss") -> float:
        """The range for a loss, checked. `name` is what an error calls the loss.

        >>> round(Gamma()(math.log(10), 10), 4)
        0.6691
        >>> round(Gamma(statistic="perplexity")(math.log(10_000), 10_000), 1)
        46.1
        """
        if self.value is not None:
            return self.value
        _check.whole_number(
            "num_classes", num_classes, 2, "the range of the LR depends on it; pass the vocabulary for text"
        )
        assert num_classes is not None
        limit = -math.log(num_classes) if self.statistic == "perplexity" else 1 / num_classes
        if not math.isfinite(loss) or loss <= limit:
            raise ValueError(
                f"{name} must be a finite number > {limit:.4g} for num_classes={num_classes} (gamma, the range of "
                f"the LR, is 0 or negative below), got {loss!r}: pass initial_loss= the loss of an untrained network, about "
                f"log(num_classes) = {math.log(num_classes):.4g}, or use 'universal-2', which takes any loss"
            )
        value = float(self.formula(loss, num_classes, HOST))
        if not 0 < value < math.inf:
            raise ValueError(
                f"gamma must be positive and finite, got {value!r} from {name} {loss!r}: pass another initial_loss="
            )
        return value

    def size(self, loss: float, num_classes: int | None) -> float:
        """|gamma| for a loss, as in the authors' program: late in a training f C < 1, where the formula is negative.

        >>> round(Gamma().size(0.02, 10), 4), Gamma().formula(0.02, 10, HOST) < 0
        (0.032, True)
        """
        if not self.needs_classes:
            raise ValueError(
                f"gamma can only be renewed where it comes from a loss, with the policies 'initial' and 'per-phase', got "
                f"{self.policy!r}: leave this schedule's range as it is"
            )
        _check.whole_number("num_classes", num_classes, 2, "the range of the LR depends on it")
        loss = _check.real("loss", loss, "a mean loss over training data")
        value = math.nan if loss <= 0 and self.statistic == "loss" else abs(self.formula(loss, num_classes, HOST))
        return _check.positive(
            f"gamma from the loss {loss!r}", value, "pass a mean loss > 0, other than 1 / num_classes"
        )

    def formula(self, loss: Any, num_classes: Any, operations: Operations) -> Any:
        """The range without checks, of numbers or tensors. The caller looks for values that are not positive."""
        if self.value is not None:
            return operations.constant(self.value, loss)
        f_0 = operations.exp(loss) if self.statistic == "perplexity" else loss
        return operations.sqrt(f_0) * operations.log(f_0 * num_classes) / (4 * num_classes**0.25)


def optimizer_scale(group: dict[str, Any]) -> float:
    """The factor that carries SGD's range over to the optimizer of a parameter group.

    - heavy-ball and Nesterov SGD: (1 - momentum) / (1 - dampening), since momentum lengthens the average step
    - Adam and its relatives, Adafactor, RMSprop, Adagrad: 0.01, times (1 - momentum) where RMSprop has momentum
    - Muon: 0.01, whatever its momentum, since its direction is orthogonalised and its length fixed
    - anything else: as SGD; `is_known` says whether that is an assumption

    The kind is read from the keys of the group, so wrapped and third-party optimizers are covered. `LearnedLR(scale=...)`
    corrects the factor where it is wrong.

    >>> round(optimizer_scale({"momentum": 0.9, "dampening": 0.0}), 6)
    0.1
    >>> optimizer_scale({"betas": (0.9, 0.999)})
    0.01
    >>> optimizer_scale({"momentum": 0.95, "ns_steps": 5})
    0.01
    """
    scale = ADAPTIVE_SCALE if is_adaptive(group) else 1.0
    if ORTHOGONAL_KEY in group:
        return scale
    momentum = float(group.get("momentum") or 0.0)
    if not momentum:
        return scale
    if not 0 < momentum < 1:
        raise ValueError(
            f"momentum must be in [0, 1) for a learned schedule, got {momentum!r}: the LR scales with 1 - momentum"
        )
    dampening = float(group.get("dampening") or 0.0)
    if not dampening < 1:
        raise ValueError(
            f"dampening must be < 1 for a learned schedule, got {dampening!r}: the LR scales with 1 / (1 - dampening)"
        )
    return scale * (1 - momentum) / (1 - dampening)


def is_adaptive(group: dict[str, Any]) -> bool:
    """Whether the optimizer of a parameter group divides by the size of the gradient: Adam and its relatives, and Muon.

    >>> is_adaptive({"betas": (0.9, 0.999)}), is_adaptive({"momentum": 0.9, "dampening": 0.0})
    (True, False)
    """
    return any(key in group for key in (ORTHOGONAL_KEY, *ADAPTIVE_KEYS))


def is_known(group: dict[str, Any]) -> bool:
    """Whether `optimizer_scale` knows the kind of optimizer of a parameter group: by its keys it is Adam-like, Muon, or SGD.

    LARS has SGD's keys, but its steps are relative to the weights.

    >>> is_known({"betas": (0.9, 0.999)}), is_known({"momentum": 0.9, "dampening": 0.0})
    (True, True)
    >>> is_known({"lr": 0.1}), is_known({"momentum": 0.9, "dampening": 0.0, "trust_coeff": 0.001})
    (False, False)
    """
    if is_adaptive(group):
        return True
    is_averaged, is_sgd = {"lambd", "t0"} <= group.keys(), {"momentum", "dampening"} <= group.keys()
    return (is_averaged or is_sgd) and not any(str(key).startswith("trust") for key in group)


def momentum_scale(group: dict[str, Any]) -> float:
    """c(m) = sqrt((1 - m) / (1 + m)), with m the momentum or beta_1 of a parameter group; 1 without one.

    Steps of one length carry further if they point the same way. Where gradients are mostly noise, steps with momentum m add up
    to 1 / c(m) times the distance of steps without, so with c(m) all of them want the same relative step.

    m is the group's `momentum`, its `beta1`, or the first of its `betas`, which may be nested.

    >>> round(momentum_scale({"momentum": 0.9}), 4), round(momentum_scale({"betas": (0.8, 0.999)}), 4)
    (0.2294, 0.3333)
    >>> momentum_scale({"lr": 0.1}), momentum_scale({"beta1": None})
    (1.0, 1.0)
    """
    m = _first(group.get("momentum")) or _first(group.get("beta1")) or _first(group.get("betas"))
    if not 0 <= m < 1:
        raise ValueError(
            f"momentum or beta_1 must be in [0, 1) for a schedule with a measured range, got {m!r}: the LR scales with "
            "sqrt((1 - m) / (1 + m))"
        )
    return math.sqrt((1 - m) / (1 + m))


def _first(value: Any) -> float:
    """A number, or the first one in nested sequences; 0 for none."""
    while isinstance(value, list | tuple):
        value = value[0] if value else None
    return float(value or 0.0)
