"""MLR-SNet: the schedule is meta-learned while the model trains (Algorithm 1)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.optim import Adam

from mlrsnet.card import Card
from mlrsnet.files.writing import copy_of
from mlrsnet.meta import Departures, Learning, MetaTrainer
from mlrsnet.nets import MLPNet, ScheduleNet
from mlrsnet.ranges import Gamma, PerplexityGamma
from mlrsnet_lab import checks
from mlrsnet_lab.methods.base import Method, Setting
from mlrsnet_lab.records import SCHEDULE

NETS = ("lstm", "mlp")
GAMMAS: dict[str, type[Gamma]] = {"loss": Gamma, "perplexity": PerplexityGamma}


class MLRSNet(Method):
    """`MetaTrainer` in the loop.

    `every` is T_val; `hidden` and `layers` are the size of the schedule's network. `gamma_from` says what gamma comes from: the
    initial `loss`, as the paper prints it, or the initial `perplexity`, as the authors' program has it for text; None takes the
    first for pictures and the second for text.
    """

    uses_lr = False

    def __init__(
        self,
        setting: Setting,
        *,
        every: int | None = None,
        meta_lr: float = 1e-3,
        meta_weight_decay: float = 1e-4,
        net: str = "lstm",
        hidden: int = 50,
        layers: int = 1,
        num_phases: int = 3,
        bptt: int = 1,
        scale: float = 1.0,
        compat: str | Sequence[str] = (),
        gamma_from: str | None = None,
        name: str = "unnamed",
    ) -> None:
        super().__init__(setting)
        checks.positive("meta_lr", meta_lr)
        departures = Departures(compat, setting.steps_per_epoch)
        network = _net(net, hidden, layers, departures, "log_classes" if setting.is_text else "none")
        adam = Adam(network.parameters(), lr=meta_lr, weight_decay=meta_weight_decay, foreach=True)
        usual = "perplexity" if setting.is_text else "loss"
        gamma = GAMMAS[checks.one_of("gamma_from", gamma_from or usual, GAMMAS)]()
        self.meta = MetaTrainer(
            setting.model,
            self.optimizer,
            total_steps=setting.total_steps,
            val_gradients=setting.val_gradients,
            net=network,
            learning=Learning(every=every, meta_optimizer=adam, num_phases=num_phases, bptt=bptt),
            departures=departures,
            card=Card(name, learned_on=setting.learned_on, gamma=gamma),
            num_classes=setting.num_classes,
            initial_loss=setting.mean_train_loss() if "initial-loss" in departures.names else None,
            scale=scale,
            process_group=setting.process_group,
        )
        self.capturable = bptt == 1  # more than one step back is kept on the host

    def step(self, loss: Tensor) -> None:
        """A training step; every `every` steps also a meta-update."""
        self.meta.step(loss)

    def is_due(self) -> bool:
        """A meta-update reads numbers on the host."""
        return self.meta.update_due

    def replayed(self) -> None:
        """Count a replayed step on the host."""
        self.meta.count_replayed()

    def scalars(self) -> dict[str, float]:
        """Gamma, the range of the LR, and the last hypergradient."""
        found = {"gamma": float(self.meta.lr.status()["gamma"])}
        if self.meta.last_hypergradient is not None:
            found["hypergradient"] = self.meta.last_hypergradient
        return found

    def leave(self, folder: Path) -> None:
        """Save what has been learned so far as a schedule, and a copy for when its file is damaged."""
        schedule = self.meta.schedule()
        for path in (copy_of(folder / SCHEDULE), folder / SCHEDULE):
            schedule.save(path)

    def state_dict(self) -> dict[str, Any]:
        """See `MetaTrainer`."""
        return self.meta.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `MetaTrainer`."""
        self.meta.load_state_dict(state)


def _net(kind: str, hidden: int, layers: int, departures: Departures, loss_scale: str) -> ScheduleNet:
    if checks.one_of("net", kind, NETS) == "mlp":
        return MLPNet(hidden, loss_scale=loss_scale)
    return departures.net(hidden, layers, loss_scale)
