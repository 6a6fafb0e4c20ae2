"""`Departures`: where the authors' program departs from the paper."""

from collections.abc import Collection
from dataclasses import dataclass

from torch import nn

from mlrsnet import _check
from mlrsnet.nets import LSTMNet
from mlrsnet.ranges import Gamma, PhaseGamma, Range

COMPAT = {
    "layout": "the default network is the authors' meta-train one: gates i, f, o, g, sigmoid(f - 1), half-width layers",
    "every": "T_val is 300 unless given",
    "epoch-period": "T_val restarts in every epoch, and its last step updates, not its first (pass steps_per_epoch)",
    "advance-twice": "at a meta-update the memory advances twice: for the look-ahead, and again for the step",
    "phases": "networks are kept after 1/200, 1/2 and all of training (their epochs 1, 100 and 200)",
    "phase-gamma": "the schedule computes gamma anew in every phase",
    "net-init": "the default network's cells begin with weights from -0.1 to 0.1, not with torch's",
    "initial-loss": "gamma comes from the mean loss of the training set in evaluation mode (pass it as initial_loss)",
}
"""Where the authors' program departs from the paper in ways that change numbers. For comparisons only."""

NET_RANGE = 0.1


@dataclass(frozen=True)
class Departures:
    """What a meta-training does as the authors' program, and not as the paper.

    Args:
        names: "authors" for all, or names out of `COMPAT`.
        steps_per_epoch: for "epoch-period".

    >>> sorted(Departures(["layout", "net-init"]).names), len(Departures("authors", steps_per_epoch=390).names)
    (['layout', 'net-init'], 8)
    """

    names: str | Collection[str] = ()
    steps_per_epoch: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.names, Collection):
            raise TypeError(
                f"names must be a name or a list of names, got {self.names!r}: pass 'authors', or some of COMPAT"
            )
        asked = [self.names] if isinstance(self.names, str) else self.names
        known = [_check.one_of("names", name, ("authors", *COMPAT)) for name in asked]
        object.__setattr__(self, "names", frozenset(COMPAT if "authors" in known else known))
        if "epoch-period" in self.names or self.steps_per_epoch is not None:
            hint = "with 'epoch-period', T_val restarts in every epoch"
            object.__setattr__(
                self, "steps_per_epoch", _check.whole_number("steps_per_epoch", self.steps_per_epoch, hint=hint)
            )

    def period(self, every: int | None) -> int:
        """T_val: as given, or the default."""
        period = every or (300 if "every" in self.names else 100)
        if "epoch-period" in self.names and self.steps_per_epoch and period > self.steps_per_epoch:
            raise ValueError(
                f"every must be at most steps_per_epoch with 'epoch-period', got {period} and {self.steps_per_epoch}: no step "
                "would update; pass a smaller T_val"
            )
        return period

    def is_due(self, step: int, period: int) -> bool:
        """Whether a step updates the network: t mod T_val = 0."""
        if "epoch-period" in self.names and self.steps_per_epoch:
            step = step % self.steps_per_epoch + 1
        return step % period == 0

    def phase_ends(self, total_steps: int, num_phases: int) -> list[int]:
        """Steps after which a network is kept: ceil(T l / k) for l = 1..k.

        >>> Departures().phase_ends(10, 3), Departures("phases").phase_ends(400, 3)
        ([4, 7, 10], [2, 200, 400])
        """
        if "phases" in self.names:
            return [-(-total_steps // part) for part in (200, 2, 1)]
        return [-(-total_steps * part // num_phases) for part in range(1, num_phases + 1)]

    def net(self, hidden_size: int = 50, num_layers: int = 1, loss_scale: str = "none") -> LSTMNet:
        """A new network to train."""
        layout = "official-train" if "layout" in self.names else "paper"
        net = LSTMNet(hidden_size, num_layers, layout=layout, loss_scale=loss_scale)
        if "net-init" in self.names:
            for layer in net.cells.modules():
                if isinstance(layer, nn.Linear):
                    nn.init.uniform_(layer.weight, -NET_RANGE, NET_RANGE)
        return net

    def range(self, learned_with: Range) -> Range:
        """The range of the schedule that was learned."""
        return PhaseGamma() if "phase-gamma" in self.names and learned_with == Gamma() else learned_with

    def check(self, initial_loss: float | None) -> None:
        """Raise if the authors' gamma was asked for without the loss that it comes from."""
        if "initial-loss" in self.names and initial_loss is None:
            raise ValueError(
                "initial_loss must be a number with 'initial-loss', got None: pass the mean loss of the training set in evaluation "
                "mode, before the first step"
            )
