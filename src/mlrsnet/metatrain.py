"""`MetaTrainer`: the paper's meta-training (Section 3.2.2, Algorithm 1).

Let f_t be the training loss, theta_t the memory of the schedule network A, and d_t the direction of the user's
optimizer. Every T_val steps:

    phi_{t+1} = phi_t - Adam(grad_phi L_val(w_t - A(f_t, theta_t; phi_t) d_t))      (Eq. 9)
    w_{t+1}   = w_t - A(f_t, theta_t; phi_{t+1}) d_t                                (Eq. 10)

In between, phi is fixed and a step is the same as `LearnedLR`'s. `_meta/lookahead.py` holds the gradient of Eq. 9.
"""

import copy
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mlrsnet import _check
from mlrsnet._engine.ranks import Group, share_from_first
from mlrsnet._engine.state import schedule_number
from mlrsnet._meta.arguments import MetaOptimizer, check_kinds, make_meta_optimizer, make_net
from mlrsnet._meta.compat import COMPAT, check_initial_loss, check_period, departures, phase_ends
from mlrsnet._meta.kept import KeptNets, copy_weights
from mlrsnet._meta.lookahead import OpenStep, check_dtypes, check_linear
from mlrsnet._meta.unroll import Unroll
from mlrsnet.card import Card
from mlrsnet.gamma import Gamma
from mlrsnet.nets import ScheduleNet
from mlrsnet.schedule import Schedule
from mlrsnet.scheduler import LearnedLR

__all__ = ["COMPAT", "MetaTrainer"]


class MetaTrainer:
    """Trains a model and the network that sets its LR. Call `meta.step(loss)` instead of `optimizer.step()`.

    Args:
        model: the model in training. Its buffers and modes are restored after a validation pass, which runs under DDP's
            `no_sync`.
        optimizer: the model's optimizer. Its step must be linear in the LR, as are those of torch's SGD, Adam, AdamW, Adamax,
            NAdam, RAdam, RMSprop, Adagrad, Adadelta and Muon. At a meta-update its step is taken at an LR of 4096 and then
            shortened, so step hooks of others must not use the weights they see there.
        total_steps: T, optimizer steps of the whole training.
        val_loss: computes the mean loss of the next validation batch with the current weights. It draws from a global
            random state of its own, which starts as a copy of the training's and carries over from call to call.
        val_gradients: use instead of `val_loss` if you compute gradients yourself, for example in a CUDA graph. Returns
            the loss and its unscaled gradients in the order of `model.parameters()`, None for a parameter without one.
            Buffers and `.grad` are not restored after it.
        net: the schedule network, trained in place; the paper's `LSTMNet()` if None.
        num_classes: for the range of the LR; see `LearnedLR`.
        every: T_val, steps between meta-updates; 100 if None.
        meta_optimizer: optimizer of the network's weights, or a function that makes one from them; Adam with LR 1e-3
            and weight decay 1e-4 if None.
        scaler: a `torch.amp.GradScaler`. It takes the steps, and also scales the validation loss.
        num_phases: k, networks kept for the schedule, after ceil(T l / k) steps for l = 1..k.
        bptt: steps to back-propagate through the network's memory; 1 in the paper.
        gamma: how the range of the LR is found.
        initial_loss, scale, min_lr, max_lr, process_group: see `LearnedLR`.
        compat: "authors", or names out of `COMPAT`; "official" means those of version 0.1.
        steps_per_epoch: for compat's "epoch-period".
        assume_linear: accept an optimizer that is not one of these.
        name, learned_on: for the schedule's card.

    >>> import torch, mlrsnet
    >>> model = torch.nn.Linear(4, 3)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> x, y = torch.randn(24, 8, 4), torch.randint(3, (24, 8))  # 20 batches to train on, 4 to validate
    >>> def batch_loss(i):
    ...     return torch.nn.functional.cross_entropy(model(x[i]), y[i])
    >>> val = iter(range(20, 24))
    >>> meta = mlrsnet.MetaTrainer(
    ...     model, optimizer, total_steps=20, val_loss=lambda: batch_loss(next(val)), num_classes=3, every=5
    ... )
    >>> for i in range(20):
    ...     loss = batch_loss(i)
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     meta.step(loss)
    >>> meta.num_updates, meta.schedule().num_phases
    (4, 3)
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        total_steps: int,
        val_loss: Callable[[], Tensor] | None = None,
        val_gradients: Callable[[], tuple[Tensor, Sequence[Tensor | None]]] | None = None,
        net: ScheduleNet | None = None,
        num_classes: int | None = None,
        every: int | None = None,
        meta_optimizer: MetaOptimizer | None = None,
        scaler: torch.amp.GradScaler | None = None,
        num_phases: int = 3,
        bptt: int = 1,
        gamma: Gamma | None = None,
        initial_loss: float | None = None,
        scale: float = 1.0,
        min_lr: float = 0.0,
        max_lr: float | None = None,
        process_group: Group = None,
        compat: str | Collection[str] = (),
        steps_per_epoch: int | None = None,
        assume_linear: bool = False,
        name: str = "unnamed",
        learned_on: str = "",
    ) -> None:
        check_kinds(model, optimizer, val_loss, val_gradients, net, scaler, gamma)
        check_linear(optimizer, assume_linear)
        self.compat = departures(compat)
        check_initial_loss(initial_loss, self.compat)
        self.model, self.optimizer, self.scaler = model, optimizer, scaler
        self.val_loss, self.val_gradients = val_loss, val_gradients
        self.every, self.steps_per_epoch = check_period(every, steps_per_epoch, self.compat)
        self.num_phases = _check.whole_number("num_phases", num_phases)
        self.bptt = _check.whole_number("bptt", bptt)
        self.net = make_net(net, self.compat)
        self._card = Card(name=name, learned_on=learned_on, gamma=gamma or Gamma())
        self.lr = LearnedLR(
            optimizer,
            Schedule(self.net, self._card),
            total_steps=_check.number_of_steps(
                "total_steps", total_steps, hint="optimizer steps of the whole training"
            ),
            num_classes=num_classes,
            initial_loss=initial_loss,
            scale=scale,
            min_lr=min_lr,
            max_lr=max_lr,
            process_group=process_group,
        )
        self.engine = self.lr.engine
        self.net.cpu().requires_grad_(True)  # on a GPU, launching kernels would cost more than the arithmetic
        for parameter in self.net.parameters():  # all ranks start with the first rank's network
            share_from_first(parameter, self.lr.process_group)
        self.engine.backend.set_weights([self.net])
        self.meta_optimizer = make_meta_optimizer(meta_optimizer, self.net)
        self.step_count = self.num_updates = self.skipped_updates = 0
        self.last_hypergradient: float | None = None
        self.last_provisional_lr: float | None = None
        self.last_val_loss: float | None = None
        self._loss_range = (math.inf, -math.inf)
        self._kept = KeptNets()
        self._unroll = Unroll(self.bptt)
        self._val_random: dict[str, Tensor] = {}

    @property
    def total_steps(self) -> int:
        """T, optimizer steps of the whole training."""
        return self.lr.total_steps

    def step(self, loss: float | Tensor | None = None) -> None:
        """Take one optimizer step at the LR the network gives for this loss. Every T_val steps, also train the network."""
        loss = self.engine.losses.collect(loss)
        if loss is None:
            raise ValueError(
                "step needs this batch's loss, got None: pass it, or call observe(loss) for each micro-batch first"
            )
        self._check_alone()
        if self.update_due:
            self._meta_step(loss)
        else:
            self._plain_step(loss)
        self._count()

    @property
    def update_due(self) -> bool:
        """Whether the next step also trains the network. Such a step reads numbers on the host, so a CUDA graph cannot hold it."""
        step = self.step_count
        if "epoch-period" in self.compat and self.steps_per_epoch:
            step = step % self.steps_per_epoch + 1
        return step % self.every == 0

    def count_replayed(self) -> None:
        """Count a plain step that a CUDA graph replayed. The host cannot see it otherwise."""
        self._count()

    def observe(self, loss: float | Tensor) -> None:
        """Add the loss of a micro-batch, undivided and without the AMP scale. The next `step` uses the mean."""
        self.lr.observe(loss)

    def schedule(self) -> Schedule:
        """The schedule learned so far: a kept network for each phase that is over, the current one for the others."""
        return Schedule(self._kept.phases(self.net, self._phase_ends(), self.step_count), self.card())

    def card(self) -> Card:
        """How the schedule was learned."""
        gamma = self._card.gamma
        if "phase-gamma" in self.compat and gamma.policy == "initial":
            gamma = replace(gamma, policy="per-phase")
        low, high = self._loss_range
        compat = f", authors' departures: {', '.join(sorted(self.compat))}" if self.compat else ""
        return replace(
            self._card,
            description=f"Algorithm 1: T_val = {self.every}, {self.num_updates} meta-updates with "
            f"{type(self.meta_optimizer).__name__}, {self.step_count} of {self.total_steps} steps{compat}.",
            optimizer=_describe(self.optimizer),
            total_steps=self.total_steps,
            gamma=gamma,
            loss_range=(low, high) if low < high else None,
        )

    def state_dict(self) -> dict[str, Any]:
        """All state except the model's and the optimizer's. `torch.load(weights_only=True)` can read it."""
        return {
            "lr": self.lr.state_dict(),
            "net": copy_weights(self.net.state_dict()),
            "meta_optimizer": copy.deepcopy(self.meta_optimizer.state_dict()),
            "counts": [self.step_count, self.num_updates, self.skipped_updates],
            "last": [self.last_hypergradient, self.last_provisional_lr, self.last_val_loss],
            "loss_range": list(self._loss_range),
            "kept": KeptNets(self._kept.weights).weights,
            "past": self._unroll.state(),
            "val_random": copy_weights(self._val_random),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly where the saved run stopped."""
        missing = {"lr", "net", "meta_optimizer", "counts", "last", "loss_range", "kept", "past"} - set(state_dict)
        if missing:
            raise ValueError(
                f"state_dict must be one saved by MetaTrainer.state_dict, got one without {sorted(missing)}"
            )
        self.net.load_state_dict(state_dict["net"])
        self.engine.backend.set_weights([self.net])
        # The saved state names the run's initial network. This process started from another one.
        self.lr.load_state_dict({**state_dict["lr"], "schedule": schedule_number(self.lr.schedule)})
        self.meta_optimizer.load_state_dict(state_dict["meta_optimizer"])
        self.step_count, self.num_updates, self.skipped_updates = state_dict["counts"]
        self.last_hypergradient, self.last_provisional_lr, self.last_val_loss = state_dict["last"]
        self._loss_range = (state_dict["loss_range"][0], state_dict["loss_range"][1])
        self._kept = KeptNets(state_dict["kept"])
        self._unroll = Unroll(self.bptt, state_dict["past"])
        saved = state_dict.get("val_random", {})  # early versions did not save it
        self._val_random = {device: state.detach().cpu().clone() for device, state in saved.items()}

    def _count(self) -> None:
        self.step_count += 1
        self.engine.check_end(self.step_count)
        if self.step_count in self._phase_ends():
            self._kept.keep(self.net, self.step_count)

    def _check_alone(self) -> None:
        """Warn once if someone else also steps the optimizer. Steps before the first `step` are fine."""
        steps = self.engine.optimizer_steps.excess(1 if self.step_count else math.inf)
        if steps:
            _check.warn(
                f"the optimizer took {steps} steps since the last MetaTrainer.step(loss), which takes one itself: remove "
                "optimizer.step(), or every batch moves the weights more than once"
            )

    def _phase_ends(self) -> list[int]:
        return phase_ends(self.total_steps, self.num_phases, self.compat)

    def _plain_step(self, loss: float | Tensor) -> None:
        self._unroll.remember(loss, self.engine.backend)
        self.engine.advance(loss)
        self._take()

    def _meta_step(self, loss: float | Tensor) -> None:
        value = float(loss)
        if not math.isfinite(value):
            self._skip("the training loss is not finite")
            self._plain_step(loss)
            return
        self.engine.follow_groups()
        check_dtypes(self.optimizer)  # groups may have been added
        moment = self.engine.backend.moment(value)
        alpha, after = self._unroll.alpha(self.net, value, moment, self.engine.rule)
        self.last_provisional_lr = alpha.item()
        scale = self._loss_scale()
        step = OpenStep(self.optimizer, self._take, self.engine.ratios, self.last_provisional_lr)
        if self._loss_scale() < scale:
            self._skip("the GradScaler skipped the step")  # it lowers its scale when it does
        else:
            self._update_network(alpha, step)
        if "advance-twice" in self.compat:
            self.engine.backend.set_memory(after.detach())
        self._unroll.remember(loss, self.engine.backend)
        self.engine.advance(loss)
        step.move(self.engine.backend.alpha())
        self._loss_range = (
            min(self._loss_range[0], value / moment.divisor),
            max(self._loss_range[1], value / moment.divisor),
        )

    def _update_network(self, alpha: Tensor, step: OpenStep) -> None:
        """Eq. 9: grad_phi L_val = (d L_val / d alpha) grad_phi alpha."""
        group = self.lr.process_group
        if self.val_gradients is not None:
            self.last_val_loss, slope = step.slope_of(*self.val_gradients(), self.model, group)
        else:
            assert self.val_loss is not None
            self.last_val_loss, slope = step.slope(
                self.model, self.val_loss, self._loss_scale(), group, self._val_random
            )
        if not (math.isfinite(self.last_val_loss) and math.isfinite(slope)):
            self._skip(f"the validation loss is {self.last_val_loss} and its slope {slope}")
            return
        self.last_hypergradient = slope
        self.meta_optimizer.zero_grad()
        with torch.autocast("cpu", enabled=False):
            (slope * alpha).backward()
        self.meta_optimizer.step()
        self.engine.backend.set_weights([self.net])
        self.num_updates += 1

    def _take(self) -> None:
        """Take the optimizer's step, through the GradScaler if there is one."""
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def _loss_scale(self) -> float:
        return 1.0 if self.scaler is None else self.scaler.get_scale()

    def _skip(self, why: str) -> None:
        if not self.skipped_updates:
            _check.warn(f"a meta-update was skipped: {why} (skipped_updates counts them)")
        self.skipped_updates += 1


def _describe(optimizer: Optimizer) -> str:
    group = optimizer.param_groups[0]
    shown = [f"{key}={group[key]}" for key in ("momentum", "nesterov", "betas", "weight_decay") if group.get(key)]
    return f"{type(optimizer).__name__}({', '.join(shown)})"
