"""The range of a network's LR: alpha_t = gamma p_t with p_t in (0, 1), carried over from SGD to other optimizers.

The paper's range comes from the first loss f_0 and the number of classes C (Section 3.2.1):

    gamma = sqrt(f_0) log(f_0 C) / (4 C^(1/4))

For language models the authors use the first *perplexity*, exp(f_0), instead of f_0, and C is the size of the vocabulary.
The loss would give a gamma of 0.87; the perplexity gives about 46, which is the size of LR such models need.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from mlrsnet import _check
from mlrsnet._optimizers import ORTHOGONAL_KEY, is_adaptive
from mlrsnet.ops import HOST, Operations

ADAPTIVE_SCALE = 0.01
"""Adam-like optimizers and Muon divide by the size of the gradient, so their LRs are about a hundredth of SGD's."""


@dataclass(frozen=True)
class Gamma:
    """The paper's range, from the first loss.

    >>> round(Gamma()(math.log(10), 10), 4)
    0.6691
    """

    needs_classes: ClassVar[bool] = True
    is_renewed: ClassVar[bool] = False
    """Whether it is computed again, from the loss of that step, where a phase begins."""

    def f_0(self, loss: Any, o: Operations) -> Any:
        """What stands for f_0."""
        return loss

    def formula(self, loss: Any, num_classes: Any, o: Operations) -> Any:
        """gamma without checks, of numbers or tensors. The caller looks for values that are not positive."""
        f_0 = self.f_0(loss, o)
        return o.sqrt(f_0) * o.log(f_0 * num_classes) / (4 * num_classes**0.25)

    def __call__(self, loss: float, num_classes: int | None, name: str = "the first loss") -> float:
        """The range for a loss, checked. `name` is what an error calls the loss."""
        classes = _check.whole_number(
            "num_classes", num_classes, 2, "the range of the LR depends on it; pass the vocabulary for text"
        )
        value = float(self.formula(loss, classes, HOST))
        if not 0 < value < math.inf:
            raise ValueError(
                f"{name} must be a finite number > {self._limit(classes):.4g} for num_classes={classes} (gamma, the range of "
                f"the LR, is 0 or negative below), got {loss!r}: pass initial_loss= the loss of an untrained network, about "
                f"log(num_classes) = {math.log(classes):.4g}, or use 'universal', which takes any loss"
            )
        return value

    def carry_over(self, group: dict[str, Any], num_classes: int | None) -> float:
        """What this range is multiplied by for the optimizer of a parameter group."""
        return optimizer_scale(group)

    def to_dict(self) -> dict[str, Any]:
        """As files hold it."""
        return {"policy": "per-phase" if self.is_renewed else "initial", "statistic": "loss", "value": None}

    def _limit(self, num_classes: int) -> float:
        return 1 / num_classes


@dataclass(frozen=True)
class PhaseGamma(Gamma):
    """The paper's range, computed again whenever the phase changes, from the loss of that step's batch; the old one stays where the
    formula is not positive. The authors' program does so, with the mean loss of the training set.
    """

    is_renewed: ClassVar[bool] = True


@dataclass(frozen=True)
class PerplexityGamma(Gamma):
    """The paper's range for language models.

    >>> round(PerplexityGamma()(math.log(10_000), 10_000), 1)
    46.1
    """

    def f_0(self, loss: Any, o: Operations) -> Any:
        """exp(f_0)."""
        return o.exp(loss)

    def carry_over(self, group: dict[str, Any], num_classes: int | None) -> float:
        """Optimizers that divide by the size of the gradient get the range of the loss.

        The perplexity makes the range large because SGD's gradients are small in language models. These optimizers make up for
        that themselves. The share is the ratio of both ranges for an untrained network, whose loss is log(C).
        """
        if num_classes is None or not is_adaptive(group):
            return optimizer_scale(group)
        untrained = math.log(num_classes)
        return optimizer_scale(group) * Gamma()(untrained, num_classes) / self(untrained, num_classes)

    def to_dict(self) -> dict[str, Any]:
        """See `Gamma`."""
        return super().to_dict() | {"statistic": "perplexity"}

    def _limit(self, num_classes: int) -> float:
        return -math.log(num_classes)


@dataclass(frozen=True)
class Fixed:
    """A range that does not depend on the loss."""

    value: float
    needs_classes: ClassVar[bool] = False
    is_renewed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        value = _check.positive("value of a fixed range", self.value, "such as 1.0")
        if type(self.value) is not int:  # 1 and 1.0 have different fingerprints: one that was given stays
            object.__setattr__(self, "value", value)

    def formula(self, loss: Any, num_classes: Any, o: Operations) -> Any:
        """See `Gamma`."""
        return o.constant(self.value, loss)

    def __call__(self, loss: float, num_classes: int | None, name: str = "the first loss") -> float:
        """See `Gamma`."""
        return self.value

    def carry_over(self, group: dict[str, Any], num_classes: int | None) -> float:
        """See `Gamma`."""
        return optimizer_scale(group)

    def to_dict(self) -> dict[str, Any]:
        """See `Gamma`."""
        return {"policy": "fixed", "statistic": "loss", "value": self.value}


Range = Gamma | Fixed
"""How a network's schedule finds its range."""


def from_dict(plain: dict[str, Any]) -> Range:
    """The reverse of `to_dict`.

    >>> from_dict(Fixed(20.0).to_dict()), from_dict(PhaseGamma().to_dict())
    (Fixed(value=20.0), PhaseGamma())
    """
    for known in (Gamma(), PhaseGamma(), PerplexityGamma()):
        if known.to_dict() == {"value": None, "statistic": "loss", **plain}:
            return known
    if plain.get("policy") == "fixed":
        return Fixed(plain.get("value"))  # type: ignore[arg-type]
    raise ValueError(
        f"gamma must be one of the paper's ranges ('initial', 'per-phase') or 'fixed' with a value, got {plain!r}: this file is of "
        "another version of mlrsnet"
    )


def optimizer_scale(group: dict[str, Any]) -> float:
    """The factor that carries SGD's range over to the optimizer of a parameter group.

    - heavy-ball and Nesterov SGD: (1 - momentum) / (1 - dampening), since momentum lengthens the average step
    - Adam and its relatives, Adafactor, RMSprop, Adagrad: 0.01, times (1 - momentum) where RMSprop has momentum
    - Muon: 0.01, whatever its momentum, since its direction is orthogonalised and its length fixed
    - anything else: as SGD; `_optimizers.is_known` says whether that is an assumption

    `LearnedLR(scale=...)` corrects the factor where it is wrong.

    >>> round(optimizer_scale({"momentum": 0.9, "dampening": 0.0}), 6)
    0.1
    >>> optimizer_scale({"betas": (0.9, 0.999)}), optimizer_scale({"momentum": 0.95, "ns_steps": 5})
    (0.01, 0.01)
    """
    scale = ADAPTIVE_SCALE if is_adaptive(group) else 1.0
    momentum, dampening = (float(group.get(key) or 0.0) for key in ("momentum", "dampening"))
    if ORTHOGONAL_KEY in group or not momentum:
        return scale
    for name, value, low, rule in (
        ("momentum", momentum, 0, "1 - momentum"),
        ("dampening", dampening, -math.inf, "1 / (1 - dampening)"),
    ):
        if not low <= value < 1:
            raise ValueError(f"{name} must be below 1 for a learned schedule, got {value!r}: the LR scales with {rule}")
    return scale * (1 - momentum) / (1 - dampening)
