"""RTHO: the LR goes down the slope of the validation loss through the whole training so far."""

from torch import Tensor
from torch.optim import SGD

from mlrsnet import baselines
from mlrsnet.lab.deciders.base import OwnOptimizer, Setting


class RTHO(OwnOptimizer):
    """`baselines.RTHO` in the loop, from the spec's LR; every step has a second backward pass and a validation batch."""

    own_gradients = True

    def __init__(self, setting: Setting, *, hyper_lr: float = 1e-3) -> None:
        super().__init__(setting, (SGD,))
        self.refuse_nesterov()
        self.optimizer: baselines.RTHO = baselines.RTHO(
            setting.model.parameters(),
            lr=setting.lr,
            hyper_lr=hyper_lr,
            momentum=self.form["momentum"],
            weight_decay=self.form["weight_decay"],
            clip_norm=setting.clip_norm,
        )

    def own_step(self) -> Tensor:
        """First the LR, then the weights."""
        return self.optimizer.step(self.setting.train_loss, self.setting.val_loss)

    def scalars(self) -> dict[str, float]:
        """The slope that the LR went down last."""
        slope = self.optimizer.last_hypergradient
        return {} if slope is None else {"hypergradient": slope}
