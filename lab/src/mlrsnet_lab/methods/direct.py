"""The LRs of a whole training as hyperparameters of their own: the problem that the paper starts from (Eq. 6).

    min over alpha_0, ..., alpha_{T-1} of f_val(w_T),       w_{t+1} = w_t - alpha_t d_t

There is no network that sets the LRs, so what is learned has no meaning in another training or at another horizon T.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam

from mlrsnet_lab import checks
from mlrsnet_lab.baselines.base import Tensors, dot, with_decay
from mlrsnet_lab.baselines.rtho import derivatives
from mlrsnet_lab.methods.base import Method, Setting

SEGMENTS = 30
"""LRs that a pass has if nothing else is asked for."""


class Direct(Method):
    """Learn the LRs of plain SGD from several passes through the same training.

    A pass is the training again: the same first weights, batches and random numbers. After every pass but the last, all LRs move by
    one step of Adam along the exact gradient of the loss on all held-out data at the end of the pass, in training mode. They are
    learned in the logarithm, so they stay positive. The last pass is the result; its LRs are in the run's trace.

    The weights are kept where an LR begins. The steps between are taken again on the way back, so that memory and checkpoints hold
    one copy of the weights for each LR, not for each step. `every=1` keeps all of them.

    Args:
        setting: the training, which begins at its LR.
        passes: into how many equal parts the run's epochs are divided.
        every: steps that share one LR; a 30th of a pass if None.
        meta_lr: of Adam; about the largest relative change of an LR from pass to pass.
    """

    own_gradients = True

    def __init__(self, setting: Setting, *, passes: int = 8, every: int | None = None, meta_lr: float = 0.3) -> None:
        super().__init__(setting)
        self.steps = _steps_of_a_pass(setting, passes)
        _check_form(setting)
        self.every = -(-self.steps // SEGMENTS) if every is None else checks.whole_number("every", every)
        starts = range(0, self.steps, self.every)
        self.log_lrs = torch.full((len(starts),), setting.lr, dtype=torch.float64).log()
        self.adam = Adam([self.log_lrs], lr=checks.positive("meta_lr", meta_lr))
        self.count = 0  # steps of this pass
        self.passes_done = 0
        self.kept: list[dict[str, Any]] = []  # the moments at which the LRs of this pass began
        self.last_norm: float | None = None

    def before_step(self) -> None:
        """Where an LR begins, keep the weights; where a pass begins, learn from the one before."""
        if self.count == self.steps:
            self.learn()
            self.setting.go_to(self.kept[0])
            del self.kept[1:]
            self.count, self.passes_done = 0, self.passes_done + 1
        segment, within = divmod(self.count, self.every)
        if not within:
            if segment == len(self.kept):
                self.kept.append(self.setting.moment())
            self.set_lr(float(self.log_lrs[segment].exp()))
        self.count += 1

    def own_step(self) -> Tensor:
        """A step of SGD."""
        self.optimizer.zero_grad()
        loss = self.setting.train_loss()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def learn(self) -> None:
        """Move all LRs along the hypergradient. The weights must be those at the end of a pass, and are others afterwards."""
        found = self.hypergradient() * self.log_lrs.exp()
        self.last_norm = float(found.norm())
        if not found.isfinite().all():
            checks.warn("the hypergradient of a pass was not finite: its LRs are kept; begin at a smaller lr")
            return
        self.log_lrs.grad = found
        self.adam.step()

    def hypergradient(self) -> Tensor:
        """d f_val(w_T) / d alpha for each LR, by reverse mode, from the weights at the end of a pass.

        With lambda_T = grad f_val(w_T), back over all steps, see `step_back`.
        """
        adjoint, found = self._val_gradient(), torch.zeros_like(self.log_lrs)
        weight_decay = self.optimizer.param_groups[0]["weight_decay"]
        for segment in reversed(range(len(self.kept))):
            alpha = float(self.log_lrs[segment].exp())
            for moment in reversed(list(self._again(segment))):
                self.setting.go_to(moment)
                self.setting.next_batch()
                _, w, gradients, curved = derivatives(self.setting.train_loss, list(adjoint), adjoint)
                found[segment] += step_back(adjoint, w, gradients, curved, alpha, weight_decay)
        return found

    def _val_gradient(self) -> dict[Tensor, Tensor]:
        """The gradient of the mean loss on all held-out data, by parameter."""
        count, parameters = self.setting.val_steps, list(self.setting.model.parameters())
        total = [torch.zeros_like(p) for p in parameters]
        for _ in range(count):
            _, found = self.setting.val_gradients()
            for whole, part in zip(total, found, strict=True):
                if part is not None:
                    whole += part / count
        return dict(zip(parameters, total, strict=True))

    def _again(self, segment: int) -> Iterator[dict[str, Any]]:
        """Take the steps of an LR again: the moments before each."""
        self.setting.go_to(self.kept[segment])
        self.set_lr(float(self.log_lrs[segment].exp()))
        for _ in range(min(self.every, self.steps - segment * self.every)):
            yield self.setting.moment()
            self.setting.next_batch()
            self.own_step()

    def scalars(self) -> dict[str, float]:
        """The pass, and the norm of the last hypergradient, for the logarithms of the LRs."""
        norm = {} if self.last_norm is None else {"hypergradient": self.last_norm}
        return {"pass": self.passes_done + 1, **norm}

    def state_dict(self) -> dict[str, Any]:
        """The LRs, Adam's state, and the pass so far."""
        names = ("log_lrs", "count", "passes_done", "kept", "last_norm")
        return {"adam": self.adam.state_dict(), **{name: getattr(self, name) for name in names}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.adam.load_state_dict(state["adam"])
        self.log_lrs.copy_(state["log_lrs"])
        self.count, self.passes_done = state["count"], state["passes_done"]
        self.kept, self.last_norm = list(state["kept"]), state["last_norm"]


@torch.no_grad()
def step_back(
    adjoint: Mapping[Tensor, Tensor], w: Tensors, gradients: Tensors, curved: Tensors, alpha: float, weight_decay: float
) -> float:
    """d f_val(w_T) / d alpha_t, and lambda back over step t, in place.

        d_t = g_t + wd w_t
        d f_val(w_T) / d alpha_t = -<lambda_{t+1}, d_t>
        lambda_t = lambda_{t+1} - alpha_t (H_t + wd) lambda_{t+1}

    `adjoint` is lambda by parameter, `curved` is H_t lambda_{t+1}. A parameter without a gradient stays where it is.
    """
    back = [adjoint[p] for p in w]
    d, changes = with_decay(w, gradients, weight_decay), with_decay(back, curved, weight_decay)
    slope = -dot(zip(back, d, strict=True))
    torch._foreach_sub_(back, changes, alpha=alpha)
    return slope


def _steps_of_a_pass(setting: Setting, passes: int) -> int:
    epochs = setting.total_steps // setting.steps_per_epoch
    checks.whole_number("passes", passes, 2, "the LRs are learned between passes")
    if epochs % passes:
        raise ValueError(
            f"passes must divide the run's epochs, {epochs}, got {passes}: pass epochs={(epochs // passes + 1) * passes}, "
            "or another number of passes"
        )
    return setting.total_steps // passes


def _check_form(setting: Setting) -> None:
    """Refuse what is not in the equations."""
    optimizer, rule = setting.optimizer, "optimizer must be one that schedule 'direct' has a form for, got"
    if type(optimizer) is not SGD:
        raise TypeError(f"{rule} {type(optimizer).__name__}: pass optimizer sgd")
    if momentum := optimizer.param_groups[0]["momentum"]:
        raise TypeError(f"{rule} SGD with momentum {momentum}: pass optimizer sgd")
    if setting.clip_norm is not None:
        raise ValueError(f"clip_norm must be null with schedule 'direct', got {setting.clip_norm}: leave it out")
    if setting.is_text:
        raise ValueError(
            "task must have batches that do not depend on each other with schedule 'direct', got running text, whose memory is "
            "carried from batch to batch: pass pictures or examples"
        )
