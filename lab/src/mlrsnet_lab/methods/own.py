"""Methods that are optimizers themselves: L4, HD and RTHO, which find their LR while they train."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

from mlrsnet_lab import baselines
from mlrsnet_lab.baselines.rtho import Closure
from mlrsnet_lab.methods.base import Method, Setting


class OwnOptimizer(Method):
    """A method that is itself an optimizer. It takes its form, momentum and other settings from the spec's optimizer.

    Args:
        setting: the training.
        forms: the types of optimizers that the method has a form for.
    """

    capturable = False
    schedule = ""
    """Its name in a spec."""

    def __init__(self, setting: Setting, forms: Sequence[type[Optimizer]]) -> None:
        super().__init__(setting)
        if type(setting.optimizer) not in forms:
            known = " and ".join(form.__name__ for form in forms)
            raise TypeError(
                f"optimizer must be one that schedule {self.schedule!r} has a form for, got "
                f"{type(setting.optimizer).__name__}: it has forms for {known}"
            )
        self.form: dict[str, Any] = setting.optimizer.param_groups[0]

    def scalars(self) -> dict[str, float]:
        """The last hypergradient, if it has one."""
        slope = getattr(self.optimizer, "last_hypergradient", None)
        return {} if slope is None else {"hypergradient": slope}

    def refuse_nesterov(self) -> None:
        """Raise if the spec's optimizer uses Nesterov momentum."""
        if self.form.get("nesterov"):
            raise ValueError(f"nesterov must be false with schedule {self.schedule!r}, got true: it has no form for it")

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The optimizer's."""
        self.optimizer.load_state_dict(state)


class L4Method(OwnOptimizer):
    """`baselines.L4`: plain gradients for sgd, L4Mom for sgdm, L4Adam for adam. The spec's LR is not used."""

    schedule = "l4"

    uses_lr = False

    def __init__(self, setting: Setting, *, fraction: float = 0.15) -> None:
        super().__init__(setting, (SGD, Adam))
        self.refuse_nesterov()
        is_adam = type(setting.optimizer) is Adam
        self.optimizer: baselines.L4 = baselines.L4(
            setting.model.parameters(),
            form="adam" if is_adam else "momentum",
            fraction=fraction,
            betas=self.form["betas"] if is_adam else (self.form["momentum"], 0.999),
            weight_decay=self.form["weight_decay"],
        )

    def step(self, loss: Tensor) -> None:
        """Step as far as this batch's loss allows."""
        self.optimizer.step(loss)

    def scalars(self) -> dict[str, float]:
        """L4's estimate of the smallest loss."""
        return {"min_loss": self.optimizer.param_groups[0]["min_loss"]}


class HDMethod(OwnOptimizer):
    """`baselines.HDSGD` or `HDAdam`, starting from the spec's LR. `hyper_lr` is the optimizer's default if None."""

    schedule = "hd"

    def __init__(self, setting: Setting, *, hyper_lr: float | None = None) -> None:
        super().__init__(setting, (SGD, Adam))
        kind, names = (
            (baselines.HDAdam, ("betas", "eps", "weight_decay"))
            if type(setting.optimizer) is Adam
            else (baselines.HDSGD, ("momentum", "nesterov", "weight_decay"))
        )
        options: dict[str, Any] = {name: self.form[name] for name in names}
        if hyper_lr is not None:
            options["hyper_lr"] = hyper_lr
        self.optimizer: baselines.HDSGD | baselines.HDAdam = kind(setting.model.parameters(), lr=setting.lr, **options)

    def step(self, loss: Tensor) -> None:
        """Update the LR, then the weights."""
        self.optimizer.step()


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
