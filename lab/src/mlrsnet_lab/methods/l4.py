"""L4: the loss of a batch decides how far its step goes."""

from torch import Tensor
from torch.optim import SGD, Adam

from mlrsnet_lab import baselines
from mlrsnet_lab.methods.base import OwnOptimizer, Setting


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
