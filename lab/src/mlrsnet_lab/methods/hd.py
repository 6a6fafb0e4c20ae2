"""HD: gradient descent on the LR, for the training loss."""

from typing import Any

from torch import Tensor
from torch.optim import SGD, Adam

from mlrsnet_lab import baselines
from mlrsnet_lab.methods.base import OwnOptimizer, Setting


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

    def scalars(self) -> dict[str, float]:
        """The last hypergradient."""
        slope = self.optimizer.last_hypergradient
        return {} if slope is None else {"hypergradient": slope}
