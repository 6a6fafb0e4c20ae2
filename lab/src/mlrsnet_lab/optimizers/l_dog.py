"""L-DoG (Ivgi et al. 2023), from the package `dog-optimizer`: distance over gradients, for each tensor by itself.

eta_t = max_{i <= t} |w_i - w_0| / sqrt(sum_{i <= t} |g_i|^2). Its authors ask for an average of the weights, which their package
has: with gamma = 8, average_t = (1 - a_t) average_{t-1} + a_t w_t, a_t = (1 + gamma) / (t + gamma).
"""

from collections.abc import Iterable
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from mlrsnet_lab import checks
from mlrsnet_lab.optimizers.plain import Make
from mlrsnet_lab.optimizers.rivals import need


def l_dog(*, reps_rel: float = 1e-6) -> Make:
    """`LDoG` with its averager. lr is 1 by default; `reps_rel` sets the first step: 1e-4 for networks with batch norm."""
    return partial(_kind(), reps_rel=checks.positive("reps_rel", reps_rel))


@cache
def _kind() -> Any:
    base, averager = need("dog", "LDoG", "dog-optimizer"), need("dog", "PolynomialDecayAverager", "dog-optimizer")

    class AveragedLDoG(base):  # type: ignore[misc, valid-type]
        """L-DoG that evaluates its average: `eval()` puts it in place of the weights, `train()` the weights back."""

        def __init__(self, parameters: Iterable[nn.Parameter], **options: Any) -> None:
            kept = list(parameters)
            super().__init__(kept, **options)
            self.averager = averager(nn.ParameterList(kept))
            self.weights: list[torch.Tensor] | None = None

        def step(self, closure: Any = None) -> Any:
            """One step of L-DoG, and of its average. A gradient that is not finite leaves the weights as they are."""
            try:
                loss = super().step(closure)
            except AssertionError:  # the sum of squares is not a number: so is the loss, which ends the training
                return None
            self.averager.step()
            return loss

        @torch.no_grad()
        def eval(self) -> None:
            """Put the average in place of the weights."""
            if self.weights is None:
                self.weights = [parameter.clone() for parameter in self.averager.base_model]
                _copy(self.averager.averaged_model, self.averager.base_model)

        @torch.no_grad()
        def train(self) -> None:
            """Put the weights back."""
            if self.weights is not None:
                _copy(self.weights, self.averager.base_model)
                self.weights = None

        def state_dict(self) -> dict[str, Any]:
            """L-DoG's, and the average."""
            return {**super().state_dict(), "averager": self.averager.state_dict()}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            """Continue from a state."""
            super().load_state_dict(state_dict)
            self.averager.load_state_dict(state_dict["averager"])

    return AveragedLDoG


def _copy(values: Any, places: Any) -> None:
    for value, place in zip(values, places, strict=True):
        place.copy_(value)
