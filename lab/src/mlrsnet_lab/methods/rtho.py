"""RTHO: gradient descent on the LR, for the validation loss, through the whole training so far."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch.optim import SGD

from mlrsnet_lab import baselines
from mlrsnet_lab.baselines.rtho import Closure
from mlrsnet_lab.methods.base import OwnOptimizer, Setting


class InTheLoop(baselines.RTHO):
    """`baselines.RTHO` with the loop's own gradients, which are CUDA graphs on a GPU. The validation closure is not called."""

    def __init__(self, setting: Setting, **options: Any) -> None:
        super().__init__(setting.model.parameters(), **options)
        self.setting = setting

    def _val_gradients(self, closure: Closure, parameters: Sequence[Tensor]) -> Sequence[Tensor | None]:
        _, found = self.setting.val_gradients()
        gradients: dict[Tensor, Tensor | None] = dict(zip(self.setting.model.parameters(), found, strict=True))
        return [gradients[parameter] for parameter in parameters]

    def _derivatives(self, closure: Closure) -> tuple[Tensor, list[Tensor], Any, Any]:
        sensitivities = [state["sensitivity"] for state in self.state.values() if "sensitivity" in state]
        return self.setting.replayed("train", partial(super()._derivatives, closure), sensitivities)


def _not_called() -> Tensor:
    raise AssertionError("the loop computes the gradients of a held-out batch itself")


class RTHOMethod(OwnOptimizer):
    """`baselines.RTHO`, starting from the spec's LR. Every step has a second backward pass and a validation batch."""

    schedule = "rtho"

    own_gradients = True

    def __init__(self, setting: Setting, *, hyper_lr: float = 1e-3) -> None:
        super().__init__(setting, (SGD,))
        self.refuse_nesterov()
        self.optimizer: baselines.RTHO = InTheLoop(
            setting,
            lr=setting.lr,
            hyper_lr=hyper_lr,
            momentum=self.form["momentum"],
            weight_decay=self.form["weight_decay"],
            clip_norm=setting.clip_norm,
        )

    def own_step(self) -> Tensor:
        """Update the LR, then the weights."""
        return self.optimizer.step(self.setting.train_loss, _not_called)

    def scalars(self) -> dict[str, float]:
        """The last hypergradient."""
        slope = self.optimizer.last_hypergradient
        return {} if slope is None else {"hypergradient": slope}
