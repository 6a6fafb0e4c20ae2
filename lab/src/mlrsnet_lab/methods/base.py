"""The interface that schedules, line searches and hypergradient methods share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mlrsnet.ranks import Group


@dataclass(frozen=True)
class Setting:
    """What a method knows of the training it works in.

    Args:
        model, optimizer, lr, total_steps, steps_per_epoch, num_classes, is_text: of the training. It has no classes if numbers are
            predicted.
        val_gradients: returns the loss of the next held-out batch and its gradients, in the order of the model's parameters. The
            model is left as it was. The next call overwrites the tensors: clone what you keep.
        train_loss: returns the differentiable loss of the training batch that is ready. Only for methods with `own_gradients`, once
            per batch.
        replayed: `replayed(name, call, tensors)` returns what `call` computes from that batch, the model and these tensors, on a
            GPU from a CUDA graph. A name stands for the same call in every step, and the call must not read numbers back. The
            next call overwrites the result.
        next_batch: makes the next training batch ready, as the loop does before every step. For steps that are taken again.
        moment: returns copies of what the next step starts from, beside the optimizer: weights and buffers, the place in the
            training data, the random state.
        go_to: `go_to(moment)` continues from a moment, in place.
        val_steps: batches of one round through the held-out data.
        mean_train_loss: returns the mean loss of the model over the whole training set, in evaluation mode. The batches are
            augmented as in training, in an order of their own. The model is left as it was.
        clip_norm: the largest norm of the gradient; methods with `own_gradients` have to clip themselves.
        learned_on: for the card of a schedule that the method learns.
        folder: the run's, if it has one.
        process_group: the processes that train together, for means over what `val_gradients` returns; False if there is one. The
            loss that a method is given, and the gradients, are means already.
    """

    model: nn.Module
    optimizer: Optimizer
    lr: float
    total_steps: int
    steps_per_epoch: int
    num_classes: int | None
    is_text: bool
    val_gradients: Callable[[], tuple[Tensor, Sequence[Tensor | None]]]
    train_loss: Callable[[], Tensor]
    replayed: Callable[[str, Callable[[], Any], Sequence[Tensor]], Any]
    next_batch: Callable[[], None]
    moment: Callable[[], dict[str, Any]]
    go_to: Callable[[dict[str, Any]], None]
    val_steps: int
    mean_train_loss: Callable[[], float]
    clip_norm: float | None = None
    learned_on: str = ""
    folder: Path | None = None
    process_group: Group = False


class Method:
    """Sets the LR and moves the weights, given the loss of a batch and its gradients.

    A subclass only has to write `step`. On a GPU the loop captures it in a CUDA graph, together with the computation of the
    gradients, so `step` must not read numbers back, and what it counts on the host has to be counted in `replayed` too.

    Class attributes:

    - `capturable = False`: every step is eager. `is_due` makes single steps eager.
    - `own_gradients = True`: the method computes its own gradients. `own_step` replaces `step` and everything before it, and only
      parts of it are captured.
    - `reads_val_loss = True`: the model is evaluated after every epoch.
    - `uses_lr = False`: the method finds its own range, whatever the spec's LR.
    """

    capturable = True
    own_gradients = False
    reads_val_loss = False
    uses_lr = True

    def __init__(self, setting: Setting) -> None:
        self.setting, self.optimizer = setting, setting.optimizer

    def before_step(self) -> None:
        """Called before every step, outside the captured graph, before the model has seen the batch."""

    def step(self, loss: Tensor) -> None:
        """Set the LR and move the weights."""
        raise NotImplementedError

    def move(self, loss: Tensor) -> None:
        """Step the optimizer, which may read the loss (ScheduleFree+)."""
        if getattr(self.optimizer, "reads_loss", False):
            self.optimizer.step(lambda: loss)  # type: ignore[arg-type, return-value]
        else:
            self.optimizer.step()

    def own_step(self) -> Tensor:
        """Take the whole step with the method's own gradients; return the batch's loss, detached."""
        raise NotImplementedError

    def is_due(self) -> bool:
        """Whether the next step must run outside the captured graph."""
        return False

    def replayed(self) -> None:
        """Count a step that was replayed from the graph."""

    def end_epoch(self, val_loss: float) -> None:
        """Called after an epoch that was evaluated, with the loss on validation data."""

    def lr(self) -> float | Tensor:
        """The LR of the last step, including a factor that the optimizer estimates itself (Prodigy's d).

        L-DoG has one LR for each tensor: this is their mean.
        """
        group = self.optimizer.param_groups[0]
        if "eta" in group:
            return torch.stack(group["eta"]).mean()
        lr: float | Tensor = group["lr"]
        return lr * group["d"] / group.get("g0_norm", 1.0) if "d" in group else lr

    def scalars(self) -> dict[str, float]:
        """More numbers for an epoch's record, such as gamma."""
        return {}

    def leave(self, folder: Path) -> None:
        """Save what the method has learned in the run's folder."""

    def state_dict(self) -> dict[str, Any]:
        """The method's state, without the optimizer's."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""

    def set_lr(self, lr: float) -> None:
        """Set one LR for all groups, in place if it is a tensor."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr

    @property
    def device(self) -> torch.device:
        """Where the LR is: on a GPU it is a tensor there."""
        lr = self.optimizer.param_groups[0]["lr"]
        return lr.device if isinstance(lr, Tensor) else torch.device("cpu")
