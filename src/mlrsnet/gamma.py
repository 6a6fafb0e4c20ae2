"""The range of the LR: alpha_t = gamma * p_t with p_t in (0, 1).

The paper's range comes from the first loss f_0 and the number of classes C (Section 3.2.1):

    gamma = sqrt(f_0) * log(f_0 * C) / (4 * C^(1/4))

For language models the authors put the first *perplexity*, exp(f_0), in the place of f_0, with C the size of the
vocabulary: with the loss gamma would be 0.86, with the perplexity it is about 46, the size of the LRs such models need.
The range is made for plain SGD; `optimizer_scale` carries it over to other optimizers.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mlrsnet import _check

POLICIES = ("initial", "per-phase", "fixed", "relative")
STATISTICS = ("loss", "perplexity")

ADAPTIVE_SCALE = 0.01
"""Adam-like optimizers divide by the gradient's size, so their LRs are about a hundredth of SGD's; so does Muon."""


@dataclass(frozen=True)
class Gamma:
    """How a schedule finds its range.

    policy: `initial` (once, from the first loss: the paper), `per-phase` (again from the current loss whenever the
        phase changes: the authors' code), `fixed` (`value`), or `relative`: `value` times |w| / |d|, see `relative.py`.
    statistic: `loss`, or `perplexity` for language models.
    """

    policy: str = "initial"
    statistic: str = "loss"
    value: float | None = None

    def __post_init__(self) -> None:
        _check.one_of("gamma policy", self.policy, POLICIES)
        _check.one_of("gamma statistic", self.statistic, STATISTICS)
        if not self.needs_classes:
            value = _check.positive("gamma value", self.value, f"a {self.policy} range needs its value, such as 1.0")
            if type(self.value) is not int:  # 1 and 1.0 have different fingerprints: one that was given stays
                object.__setattr__(self, "value", value)
        elif self.value is not None:
            raise ValueError(
                f"gamma value belongs to the policies 'fixed' and 'relative', got {self.value!r} with {self.policy!r}"
            )

    @property
    def needs_classes(self) -> bool:
        """Whether `num_classes` enters the range."""
        return self.policy not in ("fixed", "relative")

    def __call__(self, loss: float, num_classes: int | None, name: str = "the first loss") -> float:
        """The range for a loss, checked; `name` is what an error calls it.

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
                f"log(num_classes) = {math.log(num_classes):.4g}, or a schedule with a fixed gamma"
            )
        value = float(self.formula(torch.tensor(loss, dtype=torch.float64), num_classes))
        if not 0 < value < math.inf:
            raise ValueError(
                f"gamma must be positive and finite, got {value!r} from {name} {loss!r}: pass another initial_loss="
            )
        return value

    def formula(self, loss: Tensor, num_classes: int | Tensor | None) -> Tensor:
        """The same without checks, on tensors: the caller looks for values that are not positive."""
        if self.value is not None:
            return torch.full_like(loss, self.value)
        assert num_classes is not None
        f_0 = loss.exp() if self.statistic == "perplexity" else loss
        return f_0.sqrt() * (f_0 * num_classes).log() / (4 * num_classes**0.25)


def optimizer_scale(group: dict[str, Any]) -> float:
    """Factor that carries SGD's range over to the optimizer of a parameter group.

    - heavy-ball and Nesterov SGD: (1 - momentum) / (1 - dampening), the length of the average step
    - Adam and its relatives, Adafactor, RMSprop, Adagrad: 0.01, times (1 - momentum) where RMSprop has one
    - Muon: 0.01 too, whatever its momentum: its direction is orthogonalised, so its length does not depend on the gradient's
    - anything else: 1

    The kind is read from the group's own keys, so wrapped and third-party optimizers are covered; `LearnedLR(scale=...)`
    corrects it where it is wrong.

    >>> round(optimizer_scale({"momentum": 0.9, "dampening": 0.0}), 6)
    0.1
    >>> optimizer_scale({"betas": (0.9, 0.999)})
    0.01
    >>> optimizer_scale({"momentum": 0.95, "ns_steps": 5})
    0.01
    """
    if "ns_steps" in group:  # Newton-Schulz: Muon
        return ADAPTIVE_SCALE
    adaptive = any(key in group for key in ("betas", "beta2_decay", "centered", "initial_accumulator_value"))
    scale = ADAPTIVE_SCALE if adaptive else 1.0
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
