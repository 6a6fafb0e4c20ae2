"""What decides a step: the protocol that schedules, line searches and hypergradient methods share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mlrsnet._engine.groups import set_lr


@dataclass(frozen=True)
class Setting:
    """The training that a decider works in.

    `val_gradients()` is the loss of the next held-out batch and its gradients, in the order of the model's parameters, with
    the model left as it was. `train_loss()` is the loss of the step's training batch, with a gradient: for a decider whose
    `own_gradients` says so, once a step. `clip_norm` is then its own matter too, and `replayed(name, call, tensors)` what
    `call` makes of that batch, the model and these tensors, on a GPU from a CUDA graph: under one name the same call in every
    step, which reads nothing back. What it and `val_gradients()` return is overwritten when they are called next: clone what
    is kept. `folder` is the run's, where it has one.
    """

    model: nn.Module
    optimizer: Optimizer
    lr: float
    total_steps: int
    steps_per_epoch: int
    num_classes: int
    is_text: bool
    val_gradients: Callable[[], tuple[Tensor, Sequence[Tensor | None]]]
    train_loss: Callable[[], Tensor]
    replayed: Callable[[str, Callable[[], Any], Sequence[Tensor]], Any]
    clip_norm: float | None = None
    learned_on: str = ""
    folder: Path | None = None


class Method:
    """Given the loss of a batch, with its gradients in place, sets the LR and moves the weights.

    `step` is all that a subclass has to write. On a GPU the loop captures it, with the gradients' computation before it, in
    a CUDA graph: then it must not read numbers back, and what it counts on the host belongs in `replayed` too. Where that
    is impossible, `capturable = False` makes every step eager, and `is_due` single ones. `reads_val_loss = True` asks for
    an evaluation after every epoch. With `own_gradients = True` no gradients are in place, as the method needs more than
    these: `own_step` stands for `step` and for all that comes before it, and is captured in parts only. `uses_lr = False`:
    it finds its own range, whatever the spec's LR.
    """

    capturable = True
    own_gradients = False
    reads_val_loss = False
    uses_lr = True

    def __init__(self, setting: Setting) -> None:
        self.setting, self.optimizer = setting, setting.optimizer

    def step(self, loss: Tensor) -> None:
        """Move the weights by this batch's gradients."""
        raise NotImplementedError

    def own_step(self) -> Tensor:
        """The whole step of a method that computes its own gradients; returns the batch's loss, detached."""
        raise NotImplementedError

    def is_due(self) -> bool:
        """Whether the next step has to run outside the captured graph."""
        return False

    def replayed(self) -> None:
        """A step was replayed from the graph: count it."""

    def end_epoch(self, val_loss: float) -> None:
        """An epoch has ended and was evaluated, with this loss on held-out data."""

    def lr(self) -> float | Tensor:
        """The LR of the last step; where an optimizer estimates a factor of its own (Prodigy's d), with it."""
        group = self.optimizer.param_groups[0]
        lr: float | Tensor = group["lr"]
        return lr * group["d"] if "d" in group else lr

    def scalars(self) -> dict[str, float]:
        """More numbers for the records, such as gamma."""
        return {}

    def leave(self, folder: Path) -> None:
        """Write what the training has made beside its weights into the run's folder."""

    def state_dict(self) -> dict[str, Any]:
        """What the optimizer's own state does not hold."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""

    def set_lr(self, lr: float) -> None:
        """The same LR for all groups, in place where it is a tensor."""
        for group in self.optimizer.param_groups:
            set_lr(group, lr)

    @property
    def device(self) -> torch.device:
        """Where the LR lives: a GPU's LRs are tensors there."""
        lr = self.optimizer.param_groups[0]["lr"]
        return lr.device if isinstance(lr, Tensor) else torch.device("cpu")


class OwnOptimizer(Method):
    """A method that is an optimizer itself. The spec's optimizer only says which form, and its momentum and the like.

    Args:
        setting: the training.
        forms: the spec's optimizers that the method has a form for, by exact type.
    """

    capturable = False

    def __init__(self, setting: Setting, forms: Sequence[type[Optimizer]]) -> None:
        super().__init__(setting)
        if type(setting.optimizer) not in forms:
            known = " and ".join(form.__name__ for form in forms)
            raise TypeError(
                f"optimizer must be one that schedule {type(self).__name__.lower()!r} has a form for, got "
                f"{type(setting.optimizer).__name__}: it has forms for {known}"
            )
        self.form: dict[str, Any] = setting.optimizer.param_groups[0]

    def refuse_nesterov(self) -> None:
        """Where there is no form for it."""
        if self.form.get("nesterov"):
            raise ValueError(
                f"nesterov must be false with schedule {type(self).__name__.lower()!r}, got true: it has no form for it"
            )

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The optimizer's."""
        self.optimizer.load_state_dict(state)
